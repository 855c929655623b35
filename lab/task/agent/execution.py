"""One run of an agent's own task, from its request to its end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace

from lab.task.agent import command, outcomes
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.agent_log import AgentLog
from lab.task.agent.appender import REFUSED_S, AppendedContent
from lab.task.agent.fault_injection import FaultInjector
from lab.task.agent.fork_client import ForkedProgram
from lab.task.agent.launcher import WAITS, Launcher
from lab.task.agent.outcomes import GRACE_S, Shutdown, TaskOutcome
from lab.task.agent.output import Output
from lab.task.agent.process import ChildProcess, oom_kills
from lab.task.agent.record_tags import RecordTags
from lab.task.agent.stall_detector import StallDetector
from lab.task.agent.start_barrier import StartBarrier, highest_global_step
from lab.task.protocol import Attempt, Request, TaskStatus, Volume
from lab.task.protocol.control import cancel
from lab.task.protocol.files import write_atomically
from lab.task.protocol.heartbeat import PeerMonitor
from lab.task.protocol.states import Cause, State
from lab.task.protocol.statuses import Statuses, StatusWriter
from lab.task.text import LONGEST_REASON, short

POLL_S = 0.1
_STEADY_POLL_S = 0.3  # a program's end wakes the agent at once
_TOGETHER_POLL_S = 0.005  # a task: those that wait for each other begin together
_DRAIN_S = 3.0
_EARLIER = 5  # attempts that a status tells of: it has to stay within a block of the disk


def _served(state: State) -> State:
    """Where a service stands whose program has ended: nobody waits for it to get ready any more."""
    return State.READY if state is State.STARTING else state


class Execution:
    """Starts the program, watches it and the other tasks, and writes the task's state.

    The states are pending, starting (there is a process), ready (it may train as soon as the
    others may), training (it sent a step), and one of the four ends. Who stops a program decides
    first how it has ended, the *verdict*; the exit code then changes nothing about that.
    """

    def __init__(
        self, place: AgentConfig, request: Request, agent_log: AgentLog, starter: Launcher
    ) -> None:
        self._place = place
        self._request = request
        self._agent_log = agent_log
        self._starter = starter
        self._volume = Volume(place.runs)
        self._status = StatusWriter(
            self._volume.status(request.run_id, place.task),
            place.task,
            lambda error: agent_log.notify(self._cannot_write(error).reason),
        )
        self._stopping = Shutdown()
        self._statuses = Statuses(self._volume, request.run_id, request.tasks())
        peers = [task for task in request.tasks() if task != place.task]
        self._peers = PeerMonitor(self._volume, peers, patient=request.spec.restarts > 0)
        self._barrier = StartBarrier(request, place.task)
        self._disturbances = FaultInjector(
            request.spec.faults,
            task=place.task,
            node=place.node,
            volume=self._volume,
            run_id=request.run_id,
        )
        self._stall = StallDetector(
            request.spec.stall_s, request.others(), counts=request.spec.waits
        )
        self._program: ChildProcess | ForkedProgram | None = None
        self._output: Output | None = None
        # An agent that has come back goes on with what the one before it has left.
        self._written = (
            AppendedContent.of(self._volume.records(request.run_id, place.task)),
            AppendedContent.of(self._volume.log(request.run_id, place.task)),
        )
        self._start_file = self._volume.start(request.run_id, place.task)
        self._kill = self._volume.kill(request.run_id)
        self._to_start = True  # the program is to be started as soon as the gate is open
        self._waits_for = ""  # why it is not training yet, in words
        self._joins_at = ""  # the step that its program waits for by itself, in words
        self._again: str | None = None  # why the program is ended only to be started again
        self._records_lost = 0  # by all attempts
        self._refused_at: float | None = None  # since when the start file cannot be written
        self._oom_kills: int | None = None  # before the program was started
        self._leaves = False  # this agent is told to go, and may come back
        self._has_left = False
        self._is_steady = False  # training goes on and nothing is due

    @property
    def pause_s(self) -> float:
        """Seconds until the next look, unless something wakes the agent."""
        if self._is_steady:
            return _STEADY_POLL_S
        is_waiting = self._now.state is State.READY and bool(self._waits_for)
        if is_waiting and self._request.spec.waits:
            return min(POLL_S, _TOGETHER_POLL_S * len(self._request.tasks()))
        return POLL_S

    @property
    def cannot_end(self) -> bool:
        """Whether the task has ended, and this cannot be written to the volume."""
        return self._now.state.ended and self._status.refused_s >= REFUSED_S

    @property
    def wakes(self) -> tuple[int, ...]:
        """Descriptors that get readable when something is due before the next look."""
        if self._program is not None:
            return () if self._program.ended() else self._program.wakes
        return self._starter.wakes if self._to_start and self._waits_for == WAITS else ()

    @property
    def _now(self) -> TaskStatus:
        """Where the task stands."""
        return self._status.now

    def begin(self) -> None:
        """Take the run up: start the program, unless it has to wait or the run is over already."""
        if self._now.state is not State.PENDING:
            reason = "its agent was started again in the middle of the run"
            self._count(Attempt(reason, Cause.NODE_LOST, *self._span()))
        seen = self._statuses.refresh()
        self._watch(seen)
        if self._stopping.outcome is not None:
            self._end(self._stopping.outcome)
            return
        if self._request.spec.program_of(self._place.task) is None:
            self._end(TaskOutcome(State.SUCCEEDED, "it has no program in this run"))
            return
        path = command.program_path(self._place, self._request)
        if not path.is_file():
            self._end(
                TaskOutcome(State.FAILED, f"no program {path}; put it into {self._place.scripts}")
            )
            return
        self._start_in_time(seen)

    def step(self) -> bool:
        """Look at everything once; True as soon as the task has ended and its state is written."""
        if self._has_left:
            return True
        self._status.retry()
        if self._now.state.ended:
            return self._status.is_written
        seen = self._statuses.refresh()
        self._peers.check()
        self._declare_lost(seen)
        self._inject(seen)
        self._is_steady = False
        if self._program is not None and self._program.ended():
            self._finish(self._program)
        elif self._stopping.outcome is not None:
            self._press(seen)
        elif self._to_start:
            self._watch(seen)
            self._start_in_time(seen)
        else:
            self._watch(seen)
            if self._stopping.outcome is None:
                self._let_train(seen)
                self._progress()
                states = {status.state for status in seen.values()}
                # Where one has ended, the next end is near, and a service has to hear of the last.
                self._is_steady = (
                    not self._request.spec.faults
                    and State.TRAINING in states
                    and not any(state.ended for state in states)
                )
        verdict = self._stopping.outcome
        if verdict is not None and self._program is None and not self._now.state.ended:
            self._end(verdict)
        return self._has_left or (self._now.state.ended and self._status.is_written)

    def leave(self, reason: str, *, grace_s: float = GRACE_S) -> None:
        """End the program because this agent is told to go, and may not come back."""
        self._leaves = self._now.attempt < self._request.spec.restarts
        self.stop(TaskOutcome(State.CANCELLED, reason, Cause.INTERRUPTED), grace_s=grace_s)

    def stop(self, verdict: TaskOutcome, *, grace_s: float = GRACE_S) -> None:
        """End the program: SIGTERM, and after the grace SIGKILL. The first verdict stays.

        A service gets its SIGTERM only when the others have ended, but no later than after a
        grace of its own: the chief may be saving what the service holds.
        """
        if self._stopping.outcome is None:
            self._disturbances.release()
        patiently = self._serves() and verdict.state is State.CANCELLED
        self._stopping.decide(verdict, grace_s=grace_s, patiently=patiently)

    def abort(self) -> None:
        """End the program at once, without a word."""
        self._disturbances.release()
        if self._program is not None:
            self._program.reap()

    # ---- the start

    def _start_in_time(self, seen: Mapping[str, TaskStatus]) -> None:
        """Start the program if it may, otherwise say what it waits for."""
        if self._stopping.outcome is not None:
            return
        may_start = self._barrier.may_start(seen)
        if not (may_start and self._starter.is_ready(self._request)):
            self._waits_for = WAITS if may_start else self._barrier.waits_for(seen)
            self._status.publish(replace(self._now, message=self._waits_for))
            return
        self._to_start = False
        try:
            self._start()
        except OSError as error:
            path = command.program_path(self._place, self._request)
            self.stop(TaskOutcome(State.FAILED, f"{path} could not be started: {error.strerror}"))

    def _start(self) -> None:
        place, request = self._place, self._request
        environ = command.environ(place, request, self._now.attempt, os.environ)
        files = self._volume.files(request.run_id)
        files.mkdir(exist_ok=True)  # an attempt before this one may have removed it
        program, how = self._starter.start(request, environ, files)
        try:
            self._output = Output(
                program.output,
                self._volume.records(request.run_id, place.task),
                self._volume.log(request.run_id, place.task),
                self._agent_log.echo,
                RecordTags(request.run_id, self._now.attempt, place.job, place.index),
                written=self._written,
            )
        except OSError:
            # Nobody would read it, nor ever end it.
            program.reap()
            os.close(program.output)
            raise
        self._program = program
        self._oom_kills = oom_kills()
        self._output.start()
        name = command.program_path(place, request).name
        self._notify(f"{name} has started{how and f', {how}'}")
        if self._now.attempt:
            self._output.note(f"attempt {self._now.attempt} begins: {self._now.reason}")
        self._status.write(
            replace(
                self._now,
                state=State.STARTING,
                pid=program.pid,
                started_unix=time.time(),
                message="",
            )
        )

    def _let_train(self, seen: Mapping[str, TaskStatus]) -> None:
        """Give the program the word to train as soon as it may."""
        if self._output is None or not self._request.spec.waits or self._start_file.exists():
            at = None if self._now.state is State.TRAINING else self._barrier.joins_at(seen)
            self._waits_for = ""
            self._joins_at = f"joins at step {at:,}" if at else ""
        elif not self._barrier.may_train(seen):
            self._waits_for = self._barrier.waits_for(seen) if self._output.started else ""
        else:
            try:
                self._start_file.parent.mkdir(exist_ok=True)
                write_atomically(
                    self._start_file, str(self._barrier.joins_at(seen) or ""), durable=False
                )
                self._refused_at = None
            except OSError as error:
                self._refused_at = self._refused_at or time.monotonic()
                if time.monotonic() - self._refused_at >= REFUSED_S:
                    self.stop(self._cannot_write(error))

    def _start_again(self, reason: str, cause: Cause | None) -> None:
        """The program has ended; it is started again as soon as it may."""
        self._count(Attempt(reason, cause, *self._span()))
        self._again = None
        self._output = None
        self._to_start = True

    def _count(self, ended: Attempt) -> None:
        """Begin a further attempt, which gets a word of its own."""
        with contextlib.suppress(OSError):  # what fails to be written is told
            self._start_file.unlink(missing_ok=True)
        peers = self._statuses.refresh().values() if self._request.spec.gang else ()
        attempt = max([self._now.attempt + 1, *(peer.attempt for peer in peers)])
        self._status.write(
            TaskStatus(
                self._place.task,
                State.STARTING,
                attempt=attempt,
                reason=short(ended.reason, LONGEST_REASON),
                earlier=(*self._now.earlier, ended)[-_EARLIER:],
            )
        )

    def _span(self) -> tuple[float | None, float, int | None]:
        return self._now.started_unix, time.time(), self._now.global_step

    # ---- while it runs

    def _progress(self) -> None:
        """Tell the others where this task stands."""
        if self._output is not None:
            self._status.publish(self._reported(self._output))

    def _reported(self, output: Output) -> TaskStatus:
        """From starting to ready to training, and how far, as the records tell."""
        state = self._now.state
        if output.training:
            state = State.TRAINING
        elif output.started:
            state = State.READY
        return replace(
            self._now,
            state=state,
            # Why it was started again is told while it starts; `earlier` keeps it.
            reason=self._now.reason if state is State.STARTING else "",
            global_step=output.global_step,
            stepped_unix=output.stepped_unix,
            message=self._waits_for
            or self._joins_at
            or self._disturbances.current_fault
            or output.message,
        )

    def _inject(self, seen: Mapping[str, TaskStatus]) -> None:
        """Do to the program what a fault says that was asked for."""
        if self._stopping.outcome is not None:
            return
        step = highest_global_step(self._request, seen)
        for line in self._disturbances.step(self._program, self._barrier.elapsed_s, step):
            self._notify(line)
            if self._output is not None:
                self._output.note(line)

    def _watch(self, seen: Mapping[str, TaskStatus]) -> None:
        """Find a reason to stop."""
        mine, request = seen[self._place.task], self._request
        if self._output is not None and self._output.fault is not None:
            self.stop(self._cannot_write(self._output.fault))
        elif self._status.refused_s >= REFUSED_S:
            self.stop(self._cannot_write(None))
        elif mine.state is State.LOST:
            self.stop(TaskOutcome(State.LOST, mine.reason, Cause.NODE_LOST))
        elif (cancelled := self._requested()) is not None:
            self.stop(cancelled, grace_s=0.0 if self._kill.exists() else GRACE_S)
        elif reason := outcomes.peer_failure(request, self._place.task, seen):
            self.stop(TaskOutcome(State.CANCELLED, reason, Cause.PEER_LOST))
        elif self._serves() and self._others_ended(seen):
            self.stop(TaskOutcome(State.SUCCEEDED))
        elif 0 < request.spec.max_time_s <= self._barrier.elapsed_s:
            self._cancel_for_time()
        elif self._barrier.is_late(seen):
            self.stop(outcomes.not_ready(request, mine, self._output))
        elif (still := self._stall.check(seen)) and self._stall.is_reporter(self._place.task, seen):
            self.stop(outcomes.stalled(still))
        elif (reason := outcomes.peer_restarted(request, mine, seen)) and not self._to_start:
            self._again = reason
            if self._program is not None:
                self._program.signal(signal.SIGKILL)
            else:
                self._start_again(self._again, Cause.PEER_LOST)

    def _cancel_for_time(self) -> None:
        """Cancel the run for all tasks; each agent finds the request when it looks next."""
        run_id, limit_s = self._request.run_id, self._request.spec.max_time_s
        reason = f"the time limit of {limit_s:g} s is reached; continue with --resume {run_id}"
        # If the volume refuses writes, the next step tries again.
        with contextlib.suppress(OSError):
            cancel(self._volume, run_id, reason)

    def _press(self, seen: Mapping[str, TaskStatus]) -> None:
        """A verdict stands and the program has not ended: tell it, and then end it."""
        if self._kill.exists():
            self.stop(TaskOutcome(State.CANCELLED), grace_s=0.0)
        if self._program is not None:
            self._stopping.escalate(self._program, alone=self._others_ended(seen))

    def _serves(self) -> bool:
        # A cluster of services only has nobody to wait for: there each ends by itself.
        return self._request.spec.is_service(self._place.task) and bool(self._request.others())

    def _others_ended(self, seen: Mapping[str, TaskStatus]) -> bool:
        return all(seen[task].state.ended for task in self._request.others())

    def _declare_lost(self, seen: Mapping[str, TaskStatus]) -> None:
        # If the volume refuses writes, the next step tries again.
        with contextlib.suppress(OSError):
            self._peers.declare_lost(self._volume, self._request.run_id, seen)

    # ---- the end

    def _finish(self, program: ChildProcess | ForkedProgram) -> None:
        """The program has ended: empty its pipe, end what it left behind, and judge."""
        assert self._output is not None  # noqa: S101 (a program has an output)
        self._disturbances.release()
        code = program.reap()
        self._output.finish(_DRAIN_S)
        self._records_lost += self._output.records_lost
        self._progress()
        self._program = None
        self._status.now = replace(
            self._reported(self._output),
            exit_code=code if code >= 0 else None,
            signal=outcomes.signal_name(-code) if code < 0 else None,
            pid=None,
        )
        if self._output.fault is not None:
            self._stopping.outcome = self._cannot_write(self._output.fault)
        stopped = self._stopping.outcome
        if self._output.altered and (stopped is None or stopped.state is State.SUCCEEDED):
            self._stopping.outcome = outcomes.ALTERED
        if self._stopping.outcome is None and (code != 0 or self._again is not None):
            self._stopping.outcome = self._judge(code, self._output)
        if self._stopping.outcome is not None:
            self._end(self._stopping.outcome)
        elif self._to_start:
            return
        elif self._serves():
            # It has served all it had to; whether that was well, the others will tell.
            reason = "its program has ended; the others have not"
            self._status.write(replace(self._now, state=_served(self._now.state), reason=reason))
        else:
            self._end(TaskOutcome(State.SUCCEEDED))

    def _judge(self, code: int, output: Output) -> TaskOutcome | None:
        """How the task ends whose program failed without being stopped; None: it starts again."""
        if (cancelled := self._requested()) is not None:
            return cancelled
        failed = outcomes.failed(code, output, oom=oom_kills() != self._oom_kills)
        if self._again is not None:
            self._start_again(self._again, Cause.PEER_LOST)
        elif outcomes.may_start_again(self._request, self._now, self._statuses.refresh()):
            self._notify(f"{failed.reason}; it is started again")
            self._start_again(failed.reason, failed.cause)
        else:
            return failed
        return None

    def _requested(self) -> TaskOutcome | None:
        """The end that the user has asked for, if so."""
        for path in (self._kill, self._volume.cancel(self._request.run_id)):
            if (reason := outcomes.cancel_reason(path)) is not None:
                return TaskOutcome(State.CANCELLED, reason, Cause.INTERRUPTED)
        return None

    def _notify(self, line: str) -> None:
        self._agent_log.notify(f"run {self._request.run_id}: {line}")

    def _cannot_write(self, error: OSError | None) -> TaskOutcome:
        return outcomes.cannot_write(self._place.runs, error)

    def _end(self, verdict: TaskOutcome) -> None:
        if self._leaves and verdict.cause is Cause.INTERRUPTED and self._requested() is None:
            # Its agent may come back, and go on with a further attempt; if not, the others notice.
            self._has_left = True
            return
        given_up = self._statuses.refresh()[self._place.task]
        if given_up.state is State.LOST:
            # The others have acted upon it already: their word stays, whatever came since.
            verdict = TaskOutcome(State.LOST, given_up.reason, given_up.cause)
        records, _ = self._written
        ended = replace(
            self._now,
            records_sha256=records.sha256,
            records_lost=self._records_lost,
            state=verdict.state,
            reason=verdict.reason,
            cause=verdict.cause,
            ended_unix=time.time(),
        )
        self._status.write(ended)
        why = f": {verdict.reason}" if verdict.reason else ""
        self._notify(f"{verdict.state}{why}")
