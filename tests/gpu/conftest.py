"""The option of `make test-gpu`."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--evidence", default="", help="the directory for gpu-box.md (default: docs/evidence)"
    )
