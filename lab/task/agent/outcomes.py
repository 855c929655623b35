"""The outcome of a task: rules that derive it, and the signals that stop its program."""

from __future__ import annotations

import json
import math
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.records.error_line import CHECKPOINT_PART
from lab.task.agent.failure_hints import failure_hint
from lab.task.agent.fault_injection import Process
from lab.task.agent.output import Output
from lab.task.agent.process import OomKills
from lab.task.agent.start_barrier import start_together
from lab.text import LONGEST_REASON, short
from lab.volume import Request, TaskStatus
from lab.volume.files import read_regular
from lab.volume.states import Cause, State, is_optional

GRACE_S: Final = 5.0
"""Seconds from SIGTERM to SIGKILL."""

_ALL_RESTART: Final = ", so all tasks restart together"

_END_VERBS: Final = {
    State.FAILED: "failed",
    State.LOST: "was lost",
    State.CANCELLED: "was cancelled",
}


_CHECKPOINT_PART: Final = re.compile(
    rf"(\S+?)/[^/\s;]+(?:{CHECKPOINT_PART})"
    r"(?:; No such file or directory| did not exist| not found)"
)


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How a task ends, independent of its program's exit code.

    Attributes:
        state: A state for which `ended` is true.
        reason: Why, as text.
        cause: Why, as a code for programs.
    """

    state: State
    reason: str = ""
    cause: Cause | None = None


def signal_name(number: int) -> str:
    """The name of a signal number, such as `SIGKILL`; some signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def cancel_reason(path: Path) -> str | None:
    """The reason in a cancel or kill file; None if there is no such file."""
    try:
        reason = short(str(json.loads(read_regular(path))["reason"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        reason = ""
    return reason or "cancelled"


def peer_failure(request: Request, own_task: str, statuses: Mapping[str, TaskStatus]) -> str | None:
    """The end of another task that must end this one too; None if there is none.

    Failed tasks are reported before lost and cancelled ones, which are often a consequence.
    """
    others = [
        status
        for task, status in statuses.items()
        if task != own_task and not is_optional(request, task)
    ]
    for state, verb in _END_VERBS.items():
        if ended := [status for status in others if status.state is state]:
            first = min(ended, key=lambda status: status.ended_unix or math.inf)
            return short(f"{first.task} {verb}: {first.reason}", LONGEST_REASON)
    return None


def peer_restarted(
    request: Request, mine: TaskStatus, statuses: Mapping[str, TaskStatus]
) -> str | None:
    """Why this task must restart with another one, if all tasks restart together; else None.

    The reason names the task that restarted first. This agent may see a task that followed it
    earlier; the reason of that task names the first one.
    """
    if not start_together(request, statuses):
        return None
    further = [status for status in statuses.values() if status.attempt > mine.attempt]
    if not further:
        return None
    first = min(
        further, key=lambda status: status.earlier[-1].ended_unix if status.earlier else 0.0
    )
    reason = first.earlier[-1].reason if first.earlier else ""
    return reason if reason.endswith(_ALL_RESTART) else f"{first.task} restarted{_ALL_RESTART}"


def may_start_again(request: Request, mine: TaskStatus, statuses: Mapping[str, TaskStatus]) -> bool:
    """Whether a task may restart after its program has failed.

    If tasks start together, a service, the chief or a rank of Horovod cannot restart after another
    task has succeeded, because that task would not take part any more.
    """
    needed = request.spec.is_service(mine.task) or mine.task in {request.chief, *request.ranks()}
    too_late = request.spec.gang and needed and not start_together(request, statuses)
    return mine.attempt < request.spec.restarts and not too_late


def failed(
    code: int,
    output: Output,
    oom_kills: tuple[OomKills, OomKills],
    *,
    ps_count: int = 0,
    fault: str = "",
) -> TaskOutcome:
    """The outcome of a program that failed without being stopped.

    Args:
        code: Its exit code, negative for a signal.
        output: Its output.
        oom_kills: The kernel's kills for lack of memory when the program started, and now.
        ps_count: The number of the cluster's parameter servers.
        fault: The injected fault that has ended it, or "".
    """
    before, now = oom_kills
    if code >= 0:
        why = f"exit code {code}"
        cause = Cause.PEER_LOST if output.lost_contact else Cause.EXIT_CODE
    elif code == -signal.SIGKILL and now.own != before.own:
        why, cause = "killed: out of memory", Cause.OUT_OF_MEMORY
    else:
        why, cause = f"killed by {signal_name(-code)}", Cause.SIGNAL
        if code == -signal.SIGKILL and now.shared != before.shared and not fault:
            # The counter does not name the process.
            why += ", probably out of memory: the kernel has killed a process for that"
    if fault:
        return TaskOutcome(State.FAILED, f"{why} (the injected fault `{fault}`)", cause)
    message = output.error_lines.error_line()
    if message:
        hint = failure_hint(message)
        message = unshared_directory(message, ps_count) or message.rstrip("." * bool(hint)) + hint
        # The exit code of every Python program with an exception or a message is 1.
        return TaskOutcome(State.FAILED, message if code == 1 else f"{why}: {message}", cause)
    if code >= 0 and output.last_own_line:
        why += f"; its last line: {output.last_own_line}"
    return TaskOutcome(State.FAILED, why, cause)


def same_failure(decided: TaskOutcome, own: TaskOutcome) -> TaskOutcome:
    """The outcome of a program that failed by itself while its agent was about to stop it.

    It has failed, too, if the other task failed for the same reason. Otherwise its failure is often
    a consequence.

    Args:
        decided: Why the agent wanted to stop it.
        own: The outcome of its own failure.
    """
    is_same = decided.cause is Cause.PEER_LOST and decided.reason.endswith(f" failed: {own.reason}")
    return own if is_same else decided


def unshared_directory(message: str, ps_count: int) -> str | None:
    """Explain a checkpoint that parameter servers write into a directory of their own.

    Each parameter server writes its part of a checkpoint, and one task joins the parts. This fails
    if each task has its own copy of the directory, such as `/tmp` in containers.

    Args:
        message: The message of an exception.
        ps_count: The number of the cluster's parameter servers.
    """
    part = _CHECKPOINT_PART.search(message)
    if part is None or not ps_count:
        return None
    who = "the parameter servers do" if ps_count > 1 else "the parameter server and the workers do"
    return f"{who} not share {part[1]}; use a relative path"


def not_ready(request: Request, mine: TaskStatus, output: Output | None) -> TaskOutcome:
    """The outcome of a program that was not ready in time: its message and its last lines."""
    reason = f"not ready within {request.spec.ready_s:g} s"
    if mine.message:
        reason += (
            f": it {mine.message}" if mine.message.startswith("waits") else f": {mine.message}"
        )
    if output is not None and output.last_lines:
        reason += "; last lines: " + " | ".join(output.last_lines)
    return TaskOutcome(State.FAILED, short(reason, LONGEST_REASON), Cause.TIME_OUT)


def stalled(still: str) -> TaskOutcome:
    """The outcome of a run without new steps."""
    return TaskOutcome(State.FAILED, short(still, LONGEST_REASON), Cause.STALLED)


def cannot_write(volume: Path, error: OSError | None) -> TaskOutcome:
    """The outcome if the run volume cannot be written."""
    detail = f": {error.strerror}" if error is not None else ""
    reason = f"the run volume {volume} cannot be written{detail}; make room on it"
    return TaskOutcome(State.FAILED, reason, Cause.VOLUME)


class Shutdown:
    """The stop of a program: the outcome of its task, and the times of the signals.

    Attributes:
        outcome: How the task ends; None: the program is not being stopped.
    """

    def __init__(self) -> None:
        self.outcome: TaskOutcome | None = None
        self._term_at: float | None = None
        self._kill_at: float | None = None

    def decide(self, outcome: TaskOutcome, *, grace_s: float, after_peers: bool) -> None:
        """Stop the program. A second call can only make the stop earlier.

        Args:
            outcome: How the task ends; the first one stays.
            grace_s: Seconds from SIGTERM to SIGKILL; 0 kills at once.
            after_peers: Delay SIGTERM until the other tasks have ended, at most by the grace.
        """
        now = time.monotonic()
        if self.outcome is None:
            self.outcome = outcome
            self._term_at = now + (grace_s if after_peers else 0.0)
        if grace_s == 0 or self._kill_at is None:
            self._kill_at = (now if grace_s == 0 else self._term_at or now) + grace_s

    def escalate(self, program: Process, *, alone: bool) -> None:
        """Send the signal that is due.

        Args:
            program: The program.
            alone: Whether all other tasks have ended.
        """
        now = time.monotonic()
        if self._kill_at is not None and now >= self._kill_at:
            program.signal(signal.SIGKILL)
        elif self._term_at is not None and (now >= self._term_at or alone):
            program.signal(signal.SIGTERM)
            self._term_at = None
            self._kill_at = now + GRACE_S
