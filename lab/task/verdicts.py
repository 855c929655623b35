"""How a task ends, and why: pure judgements over what its agent sees."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.task.files import read_regular
from lab.task.gate import start_together
from lab.task.output import Output
from lab.task.policy import can_do_without
from lab.task.protocol import Request, TaskStatus
from lab.task.states import Cause, State
from lab.task.text import LONGEST_REASON, short

_TOGETHER: Final = ", and all of them together"

_ENDED_SO: Final = {
    State.FAILED: "failed",
    State.LOST: "was lost",
    State.CANCELLED: "was cancelled",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a task ends, whatever its program's exit code will be.

    Attributes:
        state: One of the ends.
        reason: Why, in words.
        cause: The same in a word.
    """

    state: State
    reason: str = ""
    cause: Cause | None = None


ALTERED: Final = Verdict(
    State.FAILED, "another process changed its records or its log", Cause.ALTERED
)
"""Of a task whose files do not hold what its agent has written."""


def signal_name(number: int) -> str:
    """`SIGKILL` of 9; some signals have a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def asked(path: Path) -> str | None:
    """The reason that a file gives which asks to end the run; None where there is no such file."""
    try:
        reason = short(str(json.loads(read_regular(path))["reason"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        reason = ""
    return reason or "cancelled"


def trouble(request: Request, myself: str, seen: Mapping[str, TaskStatus]) -> str | None:
    """The first task whose end ends this one, too; a failure explains more than its echo."""
    others = [
        status
        for task, status in seen.items()
        if task != myself and not can_do_without(request, task)
    ]
    for state, words in _ENDED_SO.items():
        if ended := [status for status in others if status.state is state]:
            first = min(ended, key=lambda status: status.ended_unix or math.inf)
            return short(f"{first.task} {words}: {first.reason}", LONGEST_REASON)
    return None


def ahead(request: Request, mine: TaskStatus, seen: Mapping[str, TaskStatus]) -> str | None:
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


def failed(code: int, output: Output, *, oom: bool) -> Verdict:
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
    culprit = output.culprit.line()
    return Verdict(State.FAILED, f"{why}: {culprit}" if culprit else why, cause)


def late(request: Request, mine: TaskStatus, output: Output | None) -> Verdict:
    """A program that did not get ready in time: what it says, and its last lines."""
    reason = f"not ready within {request.spec.ready_s:g} s"
    if mine.message:
        reason += (
            f": it {mine.message}" if mine.message.startswith("waits") else f": {mine.message}"
        )
    if output is not None and output.last_lines:
        reason += "; its last lines: " + " | ".join(output.last_lines)
    return Verdict(State.FAILED, short(reason, LONGEST_REASON), Cause.TIME_OUT)


def stalled(still: str) -> Verdict:
    """A training that stands still."""
    return Verdict(State.FAILED, short(still, LONGEST_REASON), Cause.STALLED)


def cannot_write(volume: Path, error: OSError | None) -> Verdict:
    """The run volume takes nothing more."""
    detail = f": {error.strerror}" if error is not None else ""
    reason = f"the run volume {volume} cannot be written{detail}; make room on it"
    return Verdict(State.FAILED, reason, Cause.VOLUME)
