"""The status of an agent's own task, which the other agents and the client read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from lab.base.text import LONGEST_REASON, short
from lab.protocol.volume import Request, TaskStatus, Volume, states
from lab.protocol.volume.clock import unix_time
from lab.protocol.volume.files import REFUSED_S, Patience
from lab.protocol.volume.states import Attempt, Cause, State
from lab.protocol.volume.status import read_status, write_status
from lab.task.agent.outcomes import ProgramEnd, TaskOutcome
from lab.task.agent.output_parser import OutputParser
from lab.task.agent.process import cpu_time_s, signal_name
from lab.task.agent.program import Program

_NOTIFY_S: Final = 1.0
"""Minimum seconds between two writes of a status with the same state."""

_EARLIER: Final = 5
"""Earlier attempts in a status. The status file must fit into one block of the disk."""

_PERIOD_S: Final = 10.0
"""Maximum seconds between two looks for a sign of life. TensorFlow logs every ten seconds that it
waits, so such a burst counts as part of a long wait."""

_ALIVE: Final = 0.02
"""The share of a CPU core from which a silent program counts as alive. A program of TensorFlow 2.21
that waits for a missing server uses less than 0.01 cores (measured by its process times). A program
that drives a GPU uses more: CUDA spins, or TensorFlow polls, while it waits for the GPU."""


class OwnStatus:
    """Writes the events of one task in one run into its status, and checks each transition.

    Attributes:
        now: The current status, even if the disk refused it.
        is_written: Whether it is on the disk.
    """

    def __init__(
        self, volume: Volume, request: Request, task: str, refused: Callable[[OSError], None]
    ) -> None:
        """Read the last status, also that of an earlier process of this agent.

        Args:
            volume: The run volume.
            request: The run.
            task: The agent's own task.
            refused: Called with the error when the disk begins to refuse writes.

        Raises:
            OSError: The status cannot be read.
        """
        self._path = volume.status(request.run_id, task)
        self._reported_at = 0.0
        self.is_written = True
        self._patience = Patience(REFUSED_S, refused)
        self.now = read_status(self._path, task)
        self._clock_offset_s = unix_time() - time.monotonic()
        self._signs_of_life = SignsOfLife(0 if request.spec.waits else request.spec.stall_s)
        self._records_lost = 0  # in all attempts

    @property
    def has_failed(self) -> bool:
        """Whether the disk has refused the current status for `REFUSED_S`."""
        return self._patience.is_over

    def retry(self) -> None:
        """Write a refused status again."""
        if not self.is_written:
            self._write(self.now)

    def now_unix(self) -> float:
        """The time in seconds since the epoch; a change of the clock in this run does not count."""
        return self._clock_offset_s + time.monotonic()

    def begin_attempt(self, reason: str, cause: Cause | None, peers: Iterable[TaskStatus]) -> None:
        """Begin a new attempt.

        Args:
            reason: Why the last attempt ended.
            cause: The reason as a code.
            peers: The statuses of the tasks that restart together with this one.
        """
        last = self.now
        ended = Attempt(reason, cause, last.started_unix, self.now_unix(), last.global_step)
        self._write(
            TaskStatus(
                last.task,
                State.STARTING,
                attempt=max([last.attempt + 1, *(peer.attempt for peer in peers)]),
                reason=short(reason, LONGEST_REASON),
                talked=last.talked,
                earlier=(*last.earlier, ended)[-_EARLIER:],
            )
        )

    def wait(self, message: str, *, for_time: bool) -> None:
        """Publish what the program waits for before it can be started.

        Args:
            message: What it waits for.
            for_time: Whether it will certainly start, which counts as a sign of life.
        """
        signs = self.now.signs_of_life
        if for_time:
            signs = self._signs_of_life.count(0, lambda: None)
        self._publish(replace(self.now, message=message, signs_of_life=signs))

    def start(self, program: Program) -> None:
        """Write that the program was started."""
        self._write(
            replace(
                self.now,
                state=State.STARTING,
                pid=program.process.pid,
                started_unix=self.now_unix(),
                message="",
            )
        )

    def progress(self, parser: OutputParser, note: str, talked: bool | None) -> None:
        """Publish what the program's lines report: state, step and message.

        Args:
            parser: The lines.
            note: The message of the agent, which precedes that of the program; "": none.
            talked: See `TaskStatus`.
        """
        self._publish(self._reported(parser, note, talked))

    def end_program(
        self, program: Program, end: ProgramEnd, note: str, talked: bool | None
    ) -> None:
        """Note the program's end, which the next write of the status contains."""
        self._records_lost += program.output.records_lost
        self.progress(program.output.parser, note, talked)
        self.now = replace(
            self._reported(program.output.parser, note, talked),
            exit_code=end.code if end.code >= 0 else None,
            signal=signal_name(-end.code) if end.code < 0 else None,
            pid=None,
        )

    def wait_for_others(self) -> None:
        """Write that the program of a service has ended; the other tasks do not wait for it."""
        state = State.READY if self.now.state is State.STARTING else self.now.state
        reason = "its program has ended; the others have not"
        self._write(replace(self.now, state=state, reason=reason))

    def end(self, outcome: TaskOutcome, records_sha256: str) -> None:
        """Write how the task has ended."""
        self._write(
            replace(
                self.now,
                records_sha256=records_sha256,
                records_lost=self._records_lost,
                state=outcome.state,
                reason=outcome.reason,
                cause=outcome.cause,
                fix=outcome.fix,
                ended_unix=self.now_unix(),
            )
        )

    def _reported(self, parser: OutputParser, note: str, talked: bool | None) -> TaskStatus:
        state = self.now.state
        if parser.training:
            state = State.TRAINING
        elif parser.started:
            state = State.READY
        return replace(
            self.now,
            state=state,
            # The reason for a restart is shown only while it starts; `earlier` keeps it.
            reason=self.now.reason if state is State.STARTING else "",
            global_step=parser.global_step,
            stepped_unix=parser.stepped_unix,
            signs_of_life=(
                self._signs_of_life.count(parser.own_lines, cpu_time_s)
                if parser.global_step is None
                else self.now.signs_of_life
            ),
            message=note or parser.message,
            talked=talked,
        )

    def _write(self, status: TaskStatus, *, durable: bool = True) -> None:
        """Write a status; if the disk refuses it, `retry` writes it again later."""
        states.check(self.now.state, status.state)
        self.now = status
        self._reported_at, self.is_written = time.monotonic(), False
        try:
            write_status(self._path, status, durable=durable)
            self.is_written = True
            self._patience.succeed()
        except OSError as error:
            self._patience.fail(error)

    def _publish(self, status: TaskStatus) -> None:
        """Write a changed status: a new state at once, other changes once a second."""
        if status.state is not self.now.state:
            self._write(status)
        elif status != self.now and time.monotonic() - self._reported_at >= _NOTIFY_S:
            # Not durable: after a crash of the host, the records still have this data.
            self._write(status, durable=False)


class SignsOfLife:
    """Counts the signs of life of one task's program, for the agents of all tasks.

    A sign of life is a printed line that is not TensorFlow's own, or CPU time.
    """

    def __init__(self, patience_s: float) -> None:
        """Start with no sign.

        Args:
            patience_s: Maximum seconds without a sign; 0: no limit, and nothing is counted.
        """
        self._period_s = min(_PERIOD_S, patience_s / 3) or math.inf
        self._looked_at = time.monotonic()
        self._lines = 0
        self._cpu_s: float | None = None
        self._count = 0

    def count(self, lines: int, cpu_time_s: Callable[[], float | None]) -> int:
        """The number of signs so far; at most one for each period.

        Args:
            lines: The number of lines that the program has printed, without TensorFlow's own.
            cpu_time_s: Returns its CPU time in seconds; None: unknown, which counts as a sign.
        """
        now = time.monotonic()
        if now - self._looked_at >= self._period_s:
            cpu_s = cpu_time_s()
            worked_s = math.inf if cpu_s is None else cpu_s - (self._cpu_s or 0.0)
            share = worked_s / (now - self._looked_at)
            self._count += lines != self._lines or share >= _ALIVE
            self._looked_at, self._lines, self._cpu_s = now, lines, cpu_s
        return self._count
