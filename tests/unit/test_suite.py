"""The targets of `.ci/run` run each test once; the tests start with default signals."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys

import pytest

from tests.support import suite
from tests.support.agents import ROOT

PATIENCE_S = 120.0


def pytest_calls(target: str) -> list[list[str]]:
    """The arguments of each call of pytest that a target makes, in order."""
    text = (ROOT / "Makefile").read_text()
    rule = text.partition(f"\n{target}:")[2].split("\n\n")[0]
    first, *recipe = rule.splitlines()
    before = [] if "$(VENV)" in first else pytest_calls(first.split()[0])
    marker = "$(BIN)/python -m pytest "
    return before + [shlex.split(line.partition(marker)[2]) for line in recipe if marker in line]


def test_ci_runs_each_test_once(request: pytest.FixtureRequest) -> None:
    """Each part of the suite is run whole, or once for each of the markers of `suite.divide`."""
    parts: dict[str, list[str]] = {}
    for part, *options in pytest_calls("test-all") + pytest_calls("test-slurm"):
        chosen = options[options.index("-m") + 1] if "-m" in options else "all"
        assert not any("::" in each or each in {"-k", "--deselect", "--ignore"} for each in options)
        parts.setdefault(part, []).append(chosen)
    assert set(parts) == set(request.config.getini("testpaths"))
    for part, chosen in parts.items():
        assert sorted(chosen) in (["all"], ["long and not slurm", "not long", "slurm"]), part
    assert {"make test-all", "make test-slurm"} < set((ROOT / ".ci/run").read_text().splitlines())


def test_make_test_runs_all_unit_tests_and_short_ones(request: pytest.FixtureRequest) -> None:
    (units, *_), (e2e, *options) = pytest_calls("test")
    assert (units, e2e, options[:2]) == ("tests/unit", "tests/e2e", ["-m", "not long"])
    for item in request.session.items:
        if "unit" in item.path.parts:
            assert not any(item.iter_markers("long")), item.nodeid
            assert not any(item.iter_markers("engine")), item.nodeid
    assert all((suite.E2E / name).is_file() for name in suite.SHORT)


class Item:
    """A collected test: its file, its fixtures, and its markers."""

    def __init__(self, file: str, *marks: pytest.MarkDecorator, fixtures: str = "") -> None:
        self.path = ROOT / "tests" / file
        self.fixturenames = fixtures.split()
        self.marks = [each.mark for each in marks]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((each for each in self.marks if each.name == name), None)

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.marks.append(marker.mark)


LONG, ENGINE, SLURM = pytest.mark.long, pytest.mark.engine, pytest.mark.slurm


@pytest.mark.parametrize(
    ("item", "markers", "limit_s"),
    [
        (Item("e2e/test_daily_use.py"), "", suite.E2E_S),
        (Item("e2e/test_daily_use.py", LONG), "long", suite.E2E_S),
        (Item("e2e/test_daily_use.py", ENGINE), "long", suite.ENGINE_S),
        (Item("e2e/test_daily_use.py", fixtures="engine image"), "long", suite.ENGINE_S),
        (Item("e2e/test_daily_use.py", SLURM), "long slurm", suite.E2E_S),
        (Item("e2e/test_daily_use.py", fixtures="project slurm"), "long slurm", suite.E2E_S),
        (Item("e2e/test_daily_use.py", pytest.mark.timeout(7)), "", 7),
        (Item("e2e/test_of_tomorrow.py"), "long", suite.E2E_S),
        (Item("unit/test_of_tomorrow.py"), "", None),
    ],
)
def test_long_tests_and_their_time_limits(item: Item, markers: str, limit_s: float | None) -> None:
    suite.divide(item)  # type: ignore[arg-type]
    limit = item.get_closest_marker("timeout")
    found = [each for each in ("long", "slurm") if item.get_closest_marker(each) is not None]
    assert found == markers.split()
    assert (None if limit is None else limit.args[0]) == limit_s


IGNORING = f"""\
import signal, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGTERM, signal.SIGALRM))
sys.path.insert(0, {str(ROOT)!r})
from tests.support import suite
suite.restore_signals()
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
with open("/proc/self/status") as status:
    sys.stdout.writelines(line for line in status if line.startswith(("SigBlk", "SigIgn")))
"""


def test_tests_do_not_inherit_ignored_signals() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IGNORING],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    default, blocked, ignored = done.stdout.splitlines()
    assert default == "True"
    assert int(blocked.split()[1], 16) == 0
    # The C library keeps signals 32 and 33 for itself: a caller can leave them ignored, and no
    # program can change that.
    changeable = sum(1 << number - 1 for number in signal.valid_signals())
    python = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXFSZ - 1)
    assert int(ignored.split()[1], 16) & changeable == python


def test_these_tests_have_default_signals_and_a_time_limit(request: pytest.FixtureRequest) -> None:
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    assert 0 < left_s <= float(request.config.getini("timeout"))
