"""The tests' part of the error catalogue: listens while they run.

What hypothesis makes up does not count: it differs from one run to the next.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.errors.scan import ROOT, scan
from tools.errors.seen import Seen

UNIT = ROOT / "tests" / "unit"
SEEN = pytest.StashKey[Seen]()
PART = pytest.StashKey[str]()
LAST = "test_every_error_was_brought_about"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option: write the page."""
    parser.addoption("--update-errors", action="store_true", help="write docs/errors.md anew")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to listen."""
    seen = Seen(scan())
    seen.install()
    config.stash[SEEN] = seen
    config.stash[PART] = ""


def pytest_unconfigure(config: pytest.Config) -> None:
    """Listen no longer."""
    config.stash[SEEN].uninstall()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """A part of the tests cannot say what is missing."""
    for item in items:
        if _is_unit(item):
            item.config.stash[PART] = f"{item.nodeid} is deselected"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the judgement last, and see whether all that it needs is there."""
    items.sort(key=lambda item: item.name == LAST)
    collected = {item.path for item in items}
    left_out = [path for path in sorted(UNIT.rglob("test_*.py")) if path not in collected]
    named = [argument for argument in config.args if "::" in argument]
    if left_out:
        config.stash[PART] = f"{left_out[0].relative_to(ROOT)} is left out"
    elif named:
        config.stash[PART] = f"only {named[0]} was asked for"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> object:
    """Listen to unit tests, one after the other."""
    seen = item.config.stash[SEEN]
    made_up = hasattr(getattr(item, "obj", None), "hypothesis")
    seen.watching = _is_unit(item) and not made_up
    try:
        return (yield)
    finally:
        seen.watching = False


def _is_unit(item: pytest.Item) -> bool:
    return UNIT in Path(item.path).parents
