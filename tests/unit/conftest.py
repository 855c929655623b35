"""Options of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _no_import_in_the_background() -> Iterator[None]:
    """No environment of a unit test imports TensorFlow; what wants that has a stand-in."""
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("LAB_LOCAL_FORK", "0")
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the files in tests/golden anew"
    )
