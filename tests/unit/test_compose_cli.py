"""A child of a command ends with it, however its user insists."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from lab.backends.compose import cli
from lab.backends.compose.cli import child, lines_of
from tests.agents import wait_for

DEAF = ["sh", "-c", "trap '' TERM; sleep 60 & echo $!; wait"]
"""It hears of no end, and neither does what it has started, whose process id it says."""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def interrupt(process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whoever waits for a child a certain time be interrupted."""
    wait = process.wait

    def interrupted(timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return wait()

    monkeypatch.setattr(process, "wait", interrupted)


def test_a_child_ends_though_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt), child(DEAF) as process:
        below = int(next(lines_of(process)))
        interrupt(process, monkeypatch)
    assert process.returncode == -signal.SIGKILL
    assert process.stdout is not None
    assert process.stdout.closed
    wait_for(lambda: not lives(below), "the end of what it has started")


def test_a_child_that_takes_too_long_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "STOP_S", 0.05)
    with child(DEAF) as process:
        below = int(next(lines_of(process)))
    assert process.returncode == -signal.SIGKILL
    wait_for(lambda: not lives(below), "the end of what it has started")


def test_a_child_is_asked_first() -> None:
    with child(
        ["sh", "-c", "trap 'exit 7' TERM; echo on; while :; do sleep 0.05; done"]
    ) as process:
        next(lines_of(process))
    assert process.returncode == 7
    with child(["true"]) as process:
        assert list(lines_of(process)) == []
    assert process.returncode == 0
