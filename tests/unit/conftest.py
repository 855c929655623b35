"""Options of the unit tests."""

from __future__ import annotations

import os

import pytest

# An environment that a unit test boots would import TensorFlow in the background; what wants that
# starts it itself, with a stand-in.
os.environ["LAB_LOCAL_FORK"] = "0"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the files in tests/golden anew"
    )
