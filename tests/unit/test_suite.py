"""The targets of `.ci/run` run each test once; the tests start with default signals."""

from __future__ import annotations

import shlex
import signal

import pytest

from tests.support import suite
from tests.support.agents import ROOT


def pytest_calls(target: str) -> list[list[str]]:
    """The arguments of each call of pytest that a target makes, in order."""
    text = (ROOT / "Makefile").read_text()
    rule = text.partition(f"\n{target}:")[2].split("\n\n")[0]
    first, *recipe = rule.splitlines()
    targets = [] if "$(VENV)" in first else first.partition("##")[0].split()
    before = [call for each in targets for call in pytest_calls(each)]
    marker = "$(BIN)/python -m pytest "
    return before + [shlex.split(line.partition(marker)[2]) for line in recipe if marker in line]


PARTS = ["engine", "long and not engine and not slurm", "not long", "slurm"]


def test_ci_runs_each_test_once(request: pytest.FixtureRequest) -> None:
    """Each part of the suite is run whole, or once for each of the markers of `suite.divide`."""
    parts: dict[str, list[str]] = {}
    for part, *options in pytest_calls("test-all") + pytest_calls("test-slurm"):
        chosen = options[options.index("-m") + 1] if "-m" in options else "all"
        assert not any("::" in each or each in {"-k", "--deselect", "--ignore"} for each in options)
        parts.setdefault(part, []).append(chosen)
    assert set(parts) == set(request.config.getini("testpaths"))
    for part, chosen in parts.items():
        assert sorted(chosen) in (["all"], PARTS), part
    assert {"make test-all", "make test-slurm"} < set((ROOT / ".ci/run").read_text().splitlines())


def test_make_test_runs_all_unit_tests_and_short_ones(request: pytest.FixtureRequest) -> None:
    (units, *_), (e2e, *options) = pytest_calls("test")
    assert (units, e2e, options[:2]) == ("tests/unit", "tests/e2e", ["-m", "not long"])
    for item in request.session.items:
        if "unit" in item.path.parts:
            assert not any(item.iter_markers("long")), item.nodeid
            assert not any(item.iter_markers("engine")), item.nodeid
    assert all((suite.E2E / name).is_file() for name in suite.SHORT)


def test_these_tests_have_default_signals_and_a_time_limit(request: pytest.FixtureRequest) -> None:
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    assert 0 < left_s <= float(request.config.getini("timeout"))
