"""How a task ends, and why: judgements over what its agent sees, and the signals that end it."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.task.agent.fault_injection import Process
from lab.task.agent.output import Output
from lab.task.agent.start_barrier import start_together
from lab.task.protocol import Request, TaskStatus
from lab.task.protocol.files import read_regular
from lab.task.protocol.policy import is_optional
from lab.task.protocol.states import Cause, State
from lab.task.text import LONGEST_REASON, short

GRACE_S: Final = 5.0
"""From SIGTERM to SIGKILL."""

_TOGETHER: Final = ", and all of them together"

_ENDED_SO: Final = {
    State.FAILED: "failed",
    State.LOST: "was lost",
    State.CANCELLED: "was cancelled",
}


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How a task ends, whatever its program's exit code will be.

    Attributes:
        state: One of the ends.
        reason: Why, in words.
        cause: The same in a word.
    """

    state: State
    reason: str = ""
    cause: Cause | None = None


ALTERED: Final = TaskOutcome(
    State.FAILED, "another process changed its records or its log", Cause.ALTERED
)
"""Of a task whose files do not hold what its agent has written."""


def signal_name(number: int) -> str:
    """`SIGKILL` of 9; some signals have a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def cancel_reason(path: Path) -> str | None:
    """The reason that a file gives which asks to end the run; None where there is no such file."""
    try:
        reason = short(str(json.loads(read_regular(path))["reason"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        reason = ""
    return reason or "cancelled"


def peer_failure(request: Request, myself: str, seen: Mapping[str, TaskStatus]) -> str | None:
    """The first task whose end ends this one, too; a failure explains more than its echo."""
    others = [
        status for task, status in seen.items() if task != myself and not is_optional(request, task)
    ]
    for state, arguments in _ENDED_SO.items():
        if ended := [status for status in others if status.state is state]:
            first = min(ended, key=lambda status: status.ended_unix or math.inf)
            return short(f"{first.task} {arguments}: {first.reason}", LONGEST_REASON)
    return None


def peer_restarted(
    request: Request, mine: TaskStatus, seen: Mapping[str, TaskStatus]
) -> str | None:
    """Why this task starts again with another, where all are to be started again together.

    The first to be started again is the reason of the others. One that only went along names it,
    and may be seen before it.
    """
    if not start_together(request, seen):
        return None
    further = [status for status in seen.values() if status.attempt > mine.attempt]
    if not further:
        return None
    first = min(
        further, key=lambda status: status.earlier[-1].ended_unix if status.earlier else 0.0
    )
    reason = first.earlier[-1].reason if first.earlier else ""
    return reason if reason.endswith(_TOGETHER) else f"{first.task} was started again{_TOGETHER}"


def may_start_again(request: Request, mine: TaskStatus, seen: Mapping[str, TaskStatus]) -> bool:
    """Whether a task whose program has failed is started again.

    Of tasks that start together, those that the others need cannot, once one of them has succeeded:
    what it would have to do with them, nobody does any more.
    """
    needed = request.spec.is_service(mine.task) or mine.task == request.chief
    too_late = request.spec.gang and needed and not start_together(request, seen)
    return mine.attempt < request.spec.restarts and not too_late


def failed(code: int, output: Output, *, oom: bool) -> TaskOutcome:
    """Why a program failed that nobody had stopped.

    Args:
        code: Its exit code, negative for a signal.
        output: What it has said.
        oom: Whether the kernel has killed something meanwhile because the memory ran out.
    """
    if code >= 0:
        why = f"exit code {code}"
        cause = Cause.PEER_LOST if output.lost_contact else Cause.EXIT_CODE
    elif code == -signal.SIGKILL and oom:
        why, cause = "killed, because the memory ran out", Cause.OUT_OF_MEMORY
    else:
        why, cause = f"killed by {signal_name(-code)}", Cause.SIGNAL
    error_lines = output.error_lines.error_line()
    return TaskOutcome(State.FAILED, f"{why}: {error_lines}" if error_lines else why, cause)


def not_ready(request: Request, mine: TaskStatus, output: Output | None) -> TaskOutcome:
    """A program that did not get ready in time: what it says, and its last lines."""
    reason = f"not ready within {request.spec.ready_s:g} s"
    if mine.message:
        reason += (
            f": it {mine.message}" if mine.message.startswith("waits") else f": {mine.message}"
        )
    if output is not None and output.last_lines:
        reason += "; its last lines: " + " | ".join(output.last_lines)
    return TaskOutcome(State.FAILED, short(reason, LONGEST_REASON), Cause.TIME_OUT)


def stalled(still: str) -> TaskOutcome:
    """A training that stands still."""
    return TaskOutcome(State.FAILED, short(still, LONGEST_REASON), Cause.STALLED)


def cannot_write(volume: Path, error: OSError | None) -> TaskOutcome:
    """The run volume takes nothing more."""
    detail = f": {error.strerror}" if error is not None else ""
    reason = f"the run volume {volume} cannot be written{detail}; make room on it"
    return TaskOutcome(State.FAILED, reason, Cause.VOLUME)


class Shutdown:
    """When a program gets which signal, and what its task has ended with.

    Attributes:
        verdict: How the task ends, whatever its program's exit code will be; None: nobody stops it.
    """

    def __init__(self) -> None:
        self.outcome: TaskOutcome | None = None
        self._term_at: float | None = None
        self._kill_at: float | None = None

    def decide(self, verdict: TaskOutcome, *, grace_s: float, patiently: bool) -> None:
        """Stop the program; whoever comes later can only make it sooner.

        Args:
            verdict: How the task ends; the first one stays.
            grace_s: Seconds from SIGTERM to SIGKILL; 0 kills at once.
            patiently: SIGTERM waits for the others' end, but no longer than the grace.
        """
        now = time.monotonic()
        if self.outcome is None:
            self.outcome = verdict
            self._term_at = now + (grace_s if patiently else 0.0)
        if grace_s == 0 or self._kill_at is None:
            self._kill_at = (now if grace_s == 0 else self._term_at or now) + grace_s

    def escalate(self, program: Process, *, alone: bool) -> None:
        """Send the signal that is due.

        Args:
            program: What is to end.
            alone: Whether the others have ended, so that nobody needs it any more.
        """
        now = time.monotonic()
        if self._kill_at is not None and now >= self._kill_at:
            program.signal(signal.SIGKILL)
        elif self._term_at is not None and (now >= self._term_at or alone):
            program.signal(signal.SIGTERM)
            self._term_at = None
            self._kill_at = now + GRACE_S
