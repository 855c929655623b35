"""How the run of one task ends: the signals that stop its program, and its last status."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lab.protocol.volume import Request, Volume
from lab.protocol.volume.control import cancel_reason
from lab.protocol.volume.states import Cause, State
from lab.protocol.volume.status import Statuses, TaskStatuses
from lab.task.agent import outcomes
from lab.task.agent.fault_injection import FaultInjector
from lab.task.agent.outcomes import TaskOutcome
from lab.task.agent.own_status import OwnStatus
from lab.task.agent.program import Program, ProgramStarter

GRACE_S: Final = 5.0
"""Seconds from SIGTERM to SIGKILL."""


@dataclass(eq=False)
class Ending:
    """The end of one task in one run; once an outcome is decided, it stays.

    Attributes:
        volume: The run volume.
        request: The run.
        status: The task's status.
        statuses: The statuses of all tasks.
        starter: Its ring is closed at the end.
        fault_injector: Its faults end before a signal is sent.
        notify: Receives lines for the user.
        outcome: How the task ends; None: its program is not being stopped.
        may_restart: Whether another process of this agent may continue an interrupted task.
        is_interrupted: Whether this agent stops before its task has ended; the task may restart.
    """

    volume: Volume
    request: Request
    status: OwnStatus
    statuses: Statuses
    starter: ProgramStarter
    fault_injector: FaultInjector
    notify: Callable[[str], None]
    outcome: TaskOutcome | None = None
    may_restart: bool = False
    is_interrupted: bool = False
    _term_at: float | None = None  # when SIGTERM is due, on the monotonic clock; None: it was sent
    _kill_at: float = 0.0  # when SIGKILL is due

    def stop(self, outcome: TaskOutcome, *, grace_s: float = GRACE_S) -> None:
        """End the program: SIGTERM, and after the grace SIGKILL. The first outcome stays.

        A service gets SIGTERM when the other tasks have ended, at the latest after the grace. Until
        then the chief may save the variables that the service holds.
        """
        now = time.monotonic()
        if self.outcome is None:
            self.fault_injector.release()
            is_service = outcomes.is_service(self.request, self.status.now.task)
            after_peers = is_service and outcome.state is State.CANCELLED
            self.outcome = outcome
            self._term_at = now + grace_s if after_peers else now
            self._kill_at = self._term_at + grace_s
        elif not grace_s:
            self._kill_at = now

    def stop_if_cancelled(self) -> bool:
        """End the program if the user has cancelled the run; return whether it ends."""
        if (cancelled := self.cancelled()) is None:
            return False
        self.stop(cancelled, grace_s=0.0 if self._is_killed() else GRACE_S)
        return True

    def escalate(self, program: Program | None, statuses: TaskStatuses) -> None:
        """Send the next due signal to the program, which must end, if it still runs."""
        number = self._due_signal(statuses)
        if number is not None and program is not None:
            program.process.signal(number)
            program.process.signal(signal.SIGCONT)  # a stopped program handles no signal

    def _due_signal(self, statuses: TaskStatuses) -> signal.Signals | None:
        """Return the signal that is due, which counts as sent, or None."""
        now = time.monotonic()
        if now >= self._kill_at or self._is_killed():
            return signal.SIGKILL
        is_alone = outcomes.others_ended(self.request, statuses)
        if self._term_at is not None and (now >= self._term_at or is_alone):
            self._term_at, self._kill_at = None, now + GRACE_S
            return signal.SIGTERM
        return None

    def end(self, outcome: TaskOutcome) -> None:
        """Write how the task ends, unless a restarted agent can continue."""
        self.starter.ring.close()
        is_interrupted = outcome.cause is Cause.INTERRUPTED and self.cancelled() is None
        if self.may_restart and is_interrupted:
            # A restarted agent continues with a new attempt; if none starts, the task is lost.
            self.is_interrupted = True
            return
        reported = self.statuses.refresh()[self.status.now.task]
        if reported.state.ended:
            # The other agents have already reacted to this end, so the state stays.
            outcome = TaskOutcome(reported.state, reported.reason, reported.cause)
        self.status.end(outcome, self.starter.digest.hexdigest())
        why = f": {outcome.reason}" if outcome.reason else ""
        self.notify(f"{outcome.state}{why}")

    def cancelled(self) -> TaskOutcome | None:
        """The outcome if the user has cancelled the run; else None."""
        reason = cancel_reason(self.volume, self.request.run_id)
        if reason is None:
            return None
        return TaskOutcome(State.CANCELLED, reason, Cause.INTERRUPTED)

    def _is_killed(self) -> bool:
        """Whether the user wants the run to end at once."""
        return self.volume.kill(self.request.run_id).exists()
