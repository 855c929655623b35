"""When a program gets which signal: by a clock of the test."""

from __future__ import annotations

import signal
import time

import pytest

from lab.task.agent.outcomes import GRACE_S, Shutdown, TaskOutcome
from lab.volume.states import Cause, State

FIRST = TaskOutcome(State.CANCELLED, "first", Cause.INTERRUPTED)
LATER = TaskOutcome(State.FAILED, "later", Cause.SIGNAL)
TERM, KILL = signal.SIGTERM, signal.SIGKILL
AT_ONCE = (0.0, (FIRST, GRACE_S, False), TERM)

Step = tuple[float, tuple[TaskOutcome, float, bool] | str, int | None]
"""Seconds since the last step; a decision, "alone" or ""; the signal that the program then gets."""


class Program:
    """Keeps the signal that it gets, and ignores it."""

    got: int | None = None

    def ended(self) -> bool:
        return False

    def signal(self, number: int) -> None:
        self.got = number


@pytest.mark.parametrize(
    "steps",
    [
        [(0.0, "", None), AT_ONCE, (GRACE_S - 0.01, "", None), (0.01, "", KILL)],
        [AT_ONCE, (0.0, (LATER, 0.0, False), KILL)],
        [AT_ONCE, (GRACE_S - 1, (LATER, GRACE_S, False), None), (1.0, "", KILL)],
        [(0.0, (FIRST, GRACE_S, True), None), (0.0, "alone", TERM), (GRACE_S, "", KILL)],
        [(0.0, (FIRST, GRACE_S, True), None), (GRACE_S, "", TERM), (GRACE_S, "", KILL)],
    ],
    ids=["ignores SIGTERM", "second without grace", "second with grace", "last one", "service"],
)
def test_the_signals_of_a_stop(monkeypatch: pytest.MonkeyPatch, steps: list[Step]) -> None:
    stop, now = Shutdown(), 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for number, (seconds, event, expected) in enumerate(steps):
        now += seconds
        if isinstance(event, tuple):
            outcome, grace_s, after_peers = event
            stop.decide(outcome, grace_s=grace_s, after_peers=after_peers)
        program = Program()
        stop.escalate(program, alone=event == "alone")
        assert program.got == expected, f"step {number}"
    assert stop.outcome == FIRST
