"""One run of an agent's own task, from its request to its end."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lab.task import command, memory, states
from lab.task.child import Program
from lab.task.identity import Identity
from lab.task.output import Output
from lab.task.place import Place
from lab.task.presence import Pulses
from lab.task.protocol import Request, TaskStatus, Volume
from lab.task.stall import Stall
from lab.task.states import Cause, State
from lab.task.statuses import Statuses, read_status, write_status
from lab.task.text import short
from lab.task.voice import Voice

GRACE_S = 5.0
"""From SIGTERM to SIGKILL."""

_DRAIN_S = 3.0
_RETRY_S = 1.0
_TELL_S = 1.0
_LONGEST_REASON = 500

_ENDED_SO = {State.FAILED: "failed", State.LOST: "was lost", State.CANCELLED: "was cancelled"}


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


class Execution:
    """Starts the program, watches it and the other tasks, and writes the task's state.

    The states are pending, starting (there is a process), ready (it sent its first record, or its
    server has started), training (it sent a step), and one of the four ends. Who stops a program
    decides first how it has ended, the *verdict*; the exit code then changes nothing about that.
    """

    def __init__(self, place: Place, request: Request, voice: Voice) -> None:
        self._place = place
        self._request = request
        self._voice = voice
        self._volume = Volume(place.runs)
        self._path = self._volume.status(request.run_id, place.task)
        self._status = read_status(self._path, place.task)
        self._statuses = Statuses(self._volume, request.run_id, request.tasks())
        peers = [task for task in request.tasks() if task != place.task]
        self._pulses = Pulses(self._volume, peers)
        self._program: Program | None = None
        self._output: Output | None = None
        self._stall = Stall(request.stall_s, request.others())
        self._oom_kills: int | None = None  # before the program was started
        self._told_at = 0.0  # when the others were last told where this task stands
        self._verdict: Verdict | None = None
        self._kill_at = 0.0
        self._retry_at: float | None = None  # when to write a state that could not be written

    @property
    def run_id(self) -> str:
        """The run."""
        return self._request.run_id

    def begin(self) -> None:
        """Start the program, unless the run is over before it has begun."""
        self._watch(self._statuses.refresh())
        if self._verdict is not None:
            self._end(self._verdict)
            return
        path = command.program_path(self._place, self._request)
        if not path.is_file():
            self._end(
                Verdict(State.FAILED, f"no program {path}; put it into {self._place.scripts}")
            )
            return
        try:
            self._start()
        except OSError as error:
            self._end(Verdict(State.FAILED, f"{path} could not be started: {error.strerror}"))

    def _start(self) -> None:
        place, request = self._place, self._request
        environ = command.environ(place, request, self._status.attempt, os.environ)
        argv = command.argv(place, request)
        program = Program(argv, environ, self._volume.run(request.run_id))
        try:
            self._output = Output(
                program.output,
                self._volume.records(request.run_id, place.task),
                self._volume.log(request.run_id, place.task),
                self._voice.echo,
                Identity(request.run_id, self._status.attempt, place.job, place.index),
            )
        except OSError:
            # Nobody would read it, nor ever end it.
            program.reap()
            os.close(program.output)
            raise
        self._program = program
        self._oom_kills = memory.kills()
        self._output.start()
        self._voice.say(f"run {self.run_id}: {request.program} has started")
        started = replace(
            self._status, state=State.STARTING, pid=program.pid, started_unix=time.time()
        )
        self._write(started)

    def step(self) -> bool:
        """Look at everything once; True as soon as the task has ended and its state is written."""
        if self._status.state.ended:
            if self._retry_at is not None and time.monotonic() >= self._retry_at:
                self._write(self._status)
            return self._retry_at is None
        states = self._statuses.refresh()
        self._pulses.beat()
        self._declare_lost(states)
        if self._program is not None and self._program.ended():
            self._finish(self._program)
        elif self._verdict is None:
            self._progress()
            self._watch(states)
        elif self._program is not None and time.monotonic() >= self._kill_at:
            self._program.signal(signal.SIGKILL)
        if self._verdict is not None and self._program is None and not self._status.state.ended:
            self._end(self._verdict)
        return self._status.state.ended and self._retry_at is None

    def stop(self, verdict: Verdict, *, grace_s: float = GRACE_S) -> None:
        """End the program: SIGTERM, and after the grace SIGKILL. The first verdict stays."""
        if self._verdict is None:
            self._verdict = verdict
            if self._program is not None:
                self._program.signal(signal.SIGTERM)
        self._kill_at = time.monotonic() + grace_s

    def abort(self) -> None:
        """End the program at once, without a word."""
        if self._program is not None:
            self._program.reap()

    def _progress(self) -> None:
        """Tell the others where this task stands: a new state at once, all else once a second."""
        if self._output is None:
            return
        told = self._told(self._output)
        if told.state is not self._status.state:
            self._write(told)
        elif told != self._status and time.monotonic() - self._told_at >= _TELL_S:
            # What a crash of the machine takes of it, the records have.
            self._write(told, durable=False)

    def _told(self, output: Output) -> TaskStatus:
        """From starting to ready to training, and how far, as the records tell."""
        state = self._status.state
        if output.training:
            state = State.TRAINING
        elif output.started:
            state = State.READY
        return replace(
            self._status,
            state=state,
            global_step=output.global_step,
            stepped_unix=output.stepped_unix,
            message=output.message,
        )

    def _watch(self, states: Mapping[str, TaskStatus]) -> None:
        """Find a reason to stop."""
        mine = states[self._place.task]
        if self._output is not None and self._output.fault is not None:
            self.stop(self._cannot_write(self._output.fault))
        elif self._retry_at is not None:
            self.stop(self._cannot_write(None))
        elif mine.state is State.LOST:
            self.stop(Verdict(State.LOST, mine.reason, Cause.NODE_LOST))
        elif reason := self._cancelled():
            self.stop(Verdict(State.CANCELLED, reason, Cause.INTERRUPTED))
        elif reason := self._trouble(states):
            self.stop(Verdict(State.CANCELLED, reason, Cause.PEER_LOST))
        elif self._serves() and all(states[task].state.ended for task in self._request.others()):
            self.stop(Verdict(State.SUCCEEDED))
        elif (still := self._stall.look(states)) and self._stall.speaks(self._place.task, states):
            self.stop(Verdict(State.FAILED, short(still, _LONGEST_REASON), Cause.STALLED))

    def _serves(self) -> bool:
        # A cluster of services only has nobody to wait for: there each ends by itself.
        return self._request.is_service(self._place.task) and bool(self._request.others())

    def _cancelled(self) -> str | None:
        path = self._volume.cancel(self.run_id)
        if not path.exists():
            return None
        try:
            reason = short(str(json.loads(path.read_text(encoding="utf-8"))["reason"]))
        except (ValueError, KeyError, TypeError):
            reason = ""
        return reason or "cancelled"

    def _trouble(self, states: Mapping[str, TaskStatus]) -> str | None:
        """The first task whose end ends this one, too; a failure explains more than its echo."""
        others = [status for task, status in states.items() if task != self._place.task]
        for state, words in _ENDED_SO.items():
            if ended := [status for status in others if status.state is state]:
                first = min(ended, key=lambda status: status.ended_unix or math.inf)
                return short(f"{first.task} {words}: {first.reason}")
        return None

    def _declare_lost(self, states: Mapping[str, TaskStatus]) -> None:
        try:
            self._pulses.declare_lost(self._volume, self.run_id, states)
        except OSError as error:
            # The lost one keeps its old state for now; this task has its own reason to stop.
            if self._verdict is None:
                self.stop(self._cannot_write(error))

    def _finish(self, program: Program) -> None:
        """The program has ended: empty its pipe, end what it left behind, and judge."""
        assert self._output is not None  # noqa: S101 (a program has an output)
        code = program.reap()
        self._output.finish(_DRAIN_S)
        self._progress()
        self._program = None
        self._status = replace(
            self._told(self._output),
            exit_code=code if code >= 0 else None,
            signal=signal.Signals(-code).name if code < 0 else None,
            pid=None,
        )
        if self._verdict is None and code != 0:
            cancelled = self._cancelled()
            if cancelled is not None:
                self._verdict = Verdict(State.CANCELLED, cancelled, Cause.INTERRUPTED)
            else:
                self._verdict = self._failed(code, self._output)
        if self._output.fault is not None:
            self._verdict = self._cannot_write(self._output.fault)
        if self._verdict is not None:
            self._end(self._verdict)
        elif self._serves():
            # It has served all it had to; whether that was well, the others will tell.
            self._write(replace(self._status, reason="its program has ended; the others have not"))
        else:
            self._end(Verdict(State.SUCCEEDED))

    def _failed(self, code: int, output: Output) -> Verdict:
        """Why a program failed that nobody had stopped."""
        if code >= 0:
            why = f"exit code {code}"
            cause = Cause.PEER_LOST if output.lost_contact else Cause.EXIT_CODE
        elif code == -signal.SIGKILL and memory.kills() != self._oom_kills:
            why, cause = "killed, because the memory ran out", Cause.OUT_OF_MEMORY
        else:
            why, cause = f"killed by {signal.Signals(-code).name}", Cause.SIGNAL
        culprit = output.culprit.line()
        return Verdict(State.FAILED, f"{why}: {culprit}" if culprit else why, cause)

    def _cannot_write(self, error: OSError | None) -> Verdict:
        detail = f": {error.strerror}" if error is not None else ""
        reason = f"the run volume {self._place.runs} cannot be written{detail}; make room on it"
        return Verdict(State.FAILED, reason, Cause.VOLUME)

    def _end(self, verdict: Verdict) -> None:
        given_up = self._statuses.refresh()[self._place.task]
        if given_up.state is State.LOST:
            # The others have acted upon it already: their word stays, whatever came since.
            verdict = Verdict(State.LOST, given_up.reason, given_up.cause)
        ended = replace(
            self._status,
            state=verdict.state,
            reason=verdict.reason,
            cause=verdict.cause,
            ended_unix=time.time(),
        )
        self._write(ended)
        why = f": {verdict.reason}" if verdict.reason else ""
        self._voice.say(f"run {self.run_id}: {verdict.state}{why}")

    def _write(self, status: TaskStatus, *, durable: bool = True) -> None:
        """Write a state; where the disk refuses, once more after a while."""
        states.check(self._status.state, status.state)
        self._status = status
        self._told_at = time.monotonic()
        try:
            write_status(self._path, status, durable=durable)
            self._retry_at = None
        except OSError as error:
            if self._retry_at is None:
                self._voice.say(self._cannot_write(error).reason)
            self._retry_at = time.monotonic() + _RETRY_S
