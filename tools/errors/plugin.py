"""The tests' part of the error catalogue: listens while they run, and judges at their end.

What hypothesis makes up does not count: it differs from one run to the next. Under pytest-xdist
each worker process listens, and the process that started them judges.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools.errors import page
from tools.errors.scan import ROOT, scan
from tools.errors.seen import Seen

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

UNIT = ROOT / "tests" / "unit"
SEEN = pytest.StashKey[Seen]()
PART = pytest.StashKey[str]()
VERDICT = pytest.StashKey[str]()
LEFT_OUT = " is left out"
_SENT = "errors_seen"


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
    """See whether all tests are there that the judgement needs."""
    collected = {item.path for item in items}
    left_out = [path for path in sorted(UNIT.rglob("test_*.py")) if path not in collected]
    named = [argument for argument in config.args if "::" in argument]
    if left_out:
        config.stash[PART] = f"{left_out[0].relative_to(ROOT)}{LEFT_OUT}"
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


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController, error: object) -> None:
    """Take what a worker process has seen."""
    stash = node.config.stash
    part, report = getattr(node, "workeroutput", {}).get(_SENT, (f"{node.gateway.id} died", None))
    if error or part:
        stash[PART] = part or f"{node.gateway.id} died"
    if report is not None:
        stash[SEEN].merge(report)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail where an error was never brought about; in a worker process, send what was seen."""
    config = session.config
    if config.option.collectonly:
        return
    if hasattr(config, "workeroutput"):
        config.workeroutput[_SENT] = (config.stash[PART], config.stash[SEEN].report())
        return
    ended = {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}
    if exitstatus not in ended or session.shouldfail or session.shouldstop:
        config.stash[PART] = config.stash[PART] or "the tests did not come to their end"
    updating = config.getoption("--update-errors")
    missing = ""
    if not config.stash[PART]:
        seen = config.stash[SEEN]
        if updating:
            examples = {each: seen.example(each) for each in seen.examples}
            page.PATH.write_text(page.write(scan(), examples), "utf-8")
        missing = "".join(
            f"\n  {each.module}:{each.lines[0]}: {each.function}: {each.what}"
            for each in sorted(seen.missing())
        )
    if missing or (updating and config.stash[PART]):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    config.stash[VERDICT] = verdict(config.stash[PART], missing)


def verdict(part: str, missing: str) -> str:
    """One line, and where errors lack a test, one for each of them; "" where a file is missing."""
    if part.endswith(LEFT_OUT):  # the user runs single files
        return ""
    if part:
        return f"whether every error has a test was not judged: {part}"
    if missing:
        return (
            "FAILED: no unit test brings these errors about; write one in tests/unit for each "
            f"(real, in this process):{missing}"
        )
    return "every error of lab/ was brought about by a unit test"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the verdict."""
    found = terminalreporter.config.stash.get(VERDICT, "")
    if found:
        terminalreporter.section("errors")
        terminalreporter.write_line(found)


def _is_unit(item: pytest.Item) -> bool:
    return UNIT in Path(item.path).parents
