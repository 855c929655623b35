"""When a program that must end gets which signal."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from lab.protocol.volume.states import Cause, State
from lab.task.agent import ending, outcomes
from lab.task.agent.ending import GRACE_S, Ending
from lab.task.agent.outcomes import TaskOutcome

OUTCOME = TaskOutcome(State.CANCELLED, "enough", Cause.INTERRUPTED)
TERM, KILL = signal.SIGTERM, signal.SIGKILL
BEGAN = 100.0

Step = tuple[float, str, int | None]
"""Seconds since the begin; "kill" or "alone" or ""; the signal that is due then."""


@pytest.mark.parametrize(
    ("grace_s", "after_peers", "steps"),
    [
        (GRACE_S, False, [(0.0, "", TERM), (GRACE_S - 0.01, "", None), (GRACE_S, "", KILL)]),
        (GRACE_S, False, [(0.0, "", TERM), (1.0, "kill", KILL)]),
        (0.0, False, [(0.0, "", KILL)]),
        (GRACE_S, True, [(0.0, "", None), (1.0, "alone", TERM), (1.0 + GRACE_S, "", KILL)]),
        (GRACE_S, True, [(0.0, "", None), (GRACE_S, "", TERM), (2 * GRACE_S, "", KILL)]),
        (0.0, True, [(0.0, "", KILL)]),
    ],
    ids=[
        "ignores SIGTERM",
        "second stop",
        "at once",
        "last service",
        "service",
        "service, at once",
    ],
)
def test_the_signals_of_a_stop(
    grace_s: float, *, after_peers: bool, steps: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, event = BEGAN, ""
    monkeypatch.setattr(ending, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(outcomes, "is_service", lambda *_: after_peers)
    monkeypatch.setattr(outcomes, "others_ended", lambda *_: event == "alone")
    volume, program = Mock(), Mock()
    volume.kill.return_value.exists = lambda: event == "kill"
    stop = Ending(volume, *(Mock() for _ in range(6)))
    stop.stop(OUTCOME, grace_s=grace_s)
    for seconds, event, expected in steps:  # noqa: B007 (the fakes read it)
        now = BEGAN + seconds
        program.reset_mock()
        stop.escalate(program, {})
        sent = [call.args[0] for call in program.process.signal.call_args_list]
        assert sent == ([] if expected is None else [expected, signal.SIGCONT]), (
            f"after {seconds:g} s"
        )
    assert stop.outcome == OUTCOME
