"""When a program gets which signal: by a clock of the test."""

from __future__ import annotations

import signal

import pytest

from lab.task.agent import outcomes
from lab.task.agent.outcomes import GRACE_S, Shutdown, TaskOutcome
from lab.task.protocol.states import Cause, State

FIRST = TaskOutcome(State.CANCELLED, "first", Cause.INTERRUPTED)
LATER = TaskOutcome(State.FAILED, "later", Cause.SIGNAL)


class Program:
    """Counts the signals that it gets, and ignores them."""

    def __init__(self) -> None:
        self.got: list[int] = []

    def ended(self) -> bool:
        return False

    def signal(self, number: int) -> None:
        self.got.append(number)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(outcomes.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def pressed(stop: Shutdown, *, alone: bool = False) -> list[int]:
    program = Program()
    stop.escalate(program, alone=alone)
    return program.got


def test_a_program_that_ignores_sigterm_is_killed_after_the_grace(clock: Clock) -> None:
    stop = Shutdown()
    assert pressed(stop) == []
    stop.decide(FIRST, grace_s=GRACE_S, after_peers=False)
    assert pressed(stop) == [signal.SIGTERM]
    clock.now += GRACE_S - 0.01
    assert pressed(stop) == []
    clock.now += 0.01
    assert pressed(stop) == [signal.SIGKILL]


def test_a_second_request_without_grace_kills_at_once_and_the_first_verdict_stays(
    clock: Clock,
) -> None:
    stop = Shutdown()
    stop.decide(FIRST, grace_s=GRACE_S, after_peers=False)
    assert pressed(stop) == [signal.SIGTERM]
    stop.decide(LATER, grace_s=0, after_peers=False)
    assert pressed(stop) == [signal.SIGKILL]
    assert stop.outcome == FIRST


def test_a_later_request_with_a_grace_gives_no_further_time(clock: Clock) -> None:
    stop = Shutdown()
    stop.decide(FIRST, grace_s=GRACE_S, after_peers=False)
    assert pressed(stop) == [signal.SIGTERM]
    clock.now += GRACE_S - 1
    stop.decide(LATER, grace_s=GRACE_S, after_peers=False)
    clock.now += 1
    assert pressed(stop) == [signal.SIGKILL]


def test_a_service_is_stopped_when_the_others_have_ended_or_the_grace_is_over(
    clock: Clock,
) -> None:
    for alone, later_s in ((True, 0.0), (False, GRACE_S)):
        stop = Shutdown()
        stop.decide(FIRST, grace_s=GRACE_S, after_peers=True)
        assert pressed(stop) == []
        clock.now += later_s
        assert pressed(stop, alone=alone) == [signal.SIGTERM]
        clock.now += GRACE_S
        assert pressed(stop) == [signal.SIGKILL]
