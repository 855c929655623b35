"""How the suite is divided, and the start conditions of each test: signals, and a time limit."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

E2E = Path(__file__).parents[1] / "e2e"

SHORT = frozenset(
    {
        "test_daily_use.py",
        "test_doctor_here.py",
        "test_evaluation.py",
        "test_gpu_pins.py",
        "test_gpu_samples.py",
        "test_interrupts.py",
        "test_late_workers.py",
        "test_local_environment.py",
        "test_node_network.py",
        "test_replay_terminal.py",
        "test_run_from_python.py",
        "test_two_users.py",
    }
)
"""The files of tests/e2e that `make test` runs, without their tests with containers."""

# Time limits in seconds. They end a test that hangs; they measure nothing. Unit tests have the
# limit in pyproject.toml.
E2E_S = 900.0
ENGINE_S = 2700.0
"""The first test with containers installs an engine and builds images."""


def divide(item: pytest.Item) -> None:
    """Mark the parts of the end-to-end tests, and set the time limit of each test.

    A test that is not short is `long`. One that needs Slurm is `long` and `slurm`, and one that
    needs an engine is `long` and `engine`.
    """
    if E2E not in item.path.parents:
        return
    needs_engine, needs_slurm = _needs(item, "engine"), _needs(item, "slurm")
    if needs_engine:
        item.add_marker(pytest.mark.engine)
    if needs_slurm:
        item.add_marker(pytest.mark.slurm)
    if needs_engine or needs_slurm or item.path.name not in SHORT:
        item.add_marker(pytest.mark.long)
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(ENGINE_S if needs_engine else E2E_S))


def _needs(item: pytest.Item, fixture: str) -> bool:
    """Whether a test has a fixture, or the marker with the same name."""
    marked = item.get_closest_marker(fixture) is not None
    return marked or fixture in getattr(item, "fixturenames", ())


def restore_signals() -> None:
    """Undo the caller's settings: `nohup` ignores SIGHUP, a background job ignores SIGINT.

    A child inherits ignored signals and the blocked ones, so the programs under test would
    ignore them too. Python itself ignores SIGPIPE and SIGXFSZ, and `subprocess` restores these.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    own = {signal.SIGPIPE, signal.SIGXFSZ}
    for number in signal.valid_signals() - own:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
