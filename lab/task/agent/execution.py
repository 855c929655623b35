"""The execution of one run by one task's agent, from the request to the end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from lab.task.agent import command, outcomes, ring
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.agent_log import AgentLog
from lab.task.agent.fault_injection import FaultInjector
from lab.task.agent.fork_client import ForkedProgram
from lab.task.agent.launcher import WAITS, Launcher
from lab.task.agent.outcomes import GRACE_S, Shutdown, TaskOutcome
from lab.task.agent.output import Output
from lab.task.agent.process import ChildProcess, OomKills, cpu_time_s
from lab.task.agent.record_tags import RecordTags
from lab.task.agent.stall_detector import SignsOfLife, StallDetector
from lab.task.agent.start_barrier import StartBarrier, highest_global_step
from lab.text import LONGEST_REASON, short
from lab.volume import Attempt, Request, TaskStatus, Volume
from lab.volume.clock import unix_time
from lab.volume.continuation import next_step
from lab.volume.control import cancel
from lab.volume.files import REFUSED_S, Patience, write_atomically
from lab.volume.heartbeat import PeerMonitor
from lab.volume.states import Cause, State
from lab.volume.status import Statuses, StatusWriter, digest_of

POLL_S = 0.1
_STEADY_POLL_S = 0.3  # a program's end wakes the agent at once
_TOGETHER_POLL_S = 0.005  # per task; waiting tasks poll faster, so that they begin together
_DRAIN_S = 3.0
_EARLIER = 5  # earlier attempts in a status; the status file must fit into one disk block


def _state_after_exit(state: State) -> State:
    """The state of a service whose program has ended; the other tasks need not wait for it."""
    return State.READY if state is State.STARTING else state


class Execution:
    """Starts the program, watches it and the other tasks, and writes the task's state.

    The states are pending, starting (the process exists), ready (it can train when all tasks are
    ready), training (it has sent a step), and one of the four ends. Before the agent stops a
    program, it decides the *outcome* of the task. The exit code does not change this outcome.
    """

    def __init__(
        self,
        config: AgentConfig,
        request: Request,
        agent_log: AgentLog,
        launcher: Launcher,
        beat: Callable[[], None],
    ) -> None:
        """Prepare the execution; it changes nothing.

        Args:
            config: The agent's settings.
            request: The run.
            agent_log: Receives lines for the user.
            launcher: Starts the program.
            beat: Updates the agent's heartbeat; called while a step takes long.

        Raises:
            OSError: The volume cannot be read.
        """
        self._config = config
        self._request = request
        self._agent_log = agent_log
        self._launcher = launcher
        self._beat = beat
        self._volume = Volume(config.runs)
        self._status = StatusWriter(
            self._volume.status(request.run_id, config.task),
            config.task,
            lambda error: agent_log.notify(self._cannot_write(error).reason),
        )
        self._shutdown = Shutdown()
        self._statuses = Statuses(self._volume, request.run_id, request.tasks())
        self._statuses.refresh()  # later calls raise no error
        peers = [task for task in request.tasks() if task != config.task]
        self._peers = PeerMonitor(self._volume, peers, patient=request.spec.restarts > 0)
        self._clock_offset_s = unix_time() - time.monotonic()
        elapsed_s = max(0.0, self._now_unix() - request.submitted_unix)
        self._barrier = StartBarrier(request, config.task, elapsed_s=elapsed_s)
        self._fault_injector = FaultInjector(
            request.spec.faults,
            task=config.task,
            node=config.node,
            volume=self._volume,
            run_id=request.run_id,
        )
        self._ring = ring.Ring(config, request)
        self._stall = StallDetector(
            request.spec.stall_s, request.others(), counts=request.spec.waits
        )
        self._signs_of_life = SignsOfLife(0 if request.spec.waits else request.spec.stall_s)
        self._program: ChildProcess | ForkedProgram | None = None
        self._output: Output | None = None
        # A restarted agent appends to the records of its earlier process.
        self._digest = digest_of(self._volume.records(request.run_id, config.task), beat)
        self._start_file = self._volume.start(request.run_id, config.task)
        self._kill_file = self._volume.kill(request.run_id)
        self._must_start = True  # the program starts as soon as the barrier allows it
        self._waits_for = ""  # why it is not training yet, as text
        self._join_note = ""  # the step at which its program joins, as text
        self._restart_reason: str | None = None  # why the program restarts
        self._records_lost = 0  # in all attempts
        self._start_patience = Patience(REFUSED_S)  # for writing the start file
        self._may_restart = False  # this agent must stop, and a restart may follow
        self._is_interrupted = False
        self._is_steady = False  # training continues and nothing is due

    @property
    def pause_s(self) -> float:
        """Seconds until the next poll, unless something wakes the agent."""
        if self._is_steady:
            return _STEADY_POLL_S
        is_waiting = self._current.state is State.READY and bool(self._waits_for)
        if is_waiting and self._request.spec.waits:
            return min(POLL_S, _TOGETHER_POLL_S * len(self._request.tasks()))
        return POLL_S

    @property
    def cannot_end(self) -> bool:
        """Whether the task has ended and the volume refuses its final status."""
        return self._current.state.ended and self._status.has_failed

    @property
    def _has_ended(self) -> bool:
        """Whether the task has ended, and the other tasks see an end."""
        return self._current.state.ended and (
            self._status.is_written or self._statuses.refresh()[self._config.task].state.ended
        )

    @property
    def wake_fds(self) -> tuple[int, ...]:
        """Descriptors that get readable when the agent must act before the next poll."""
        if self._program is not None:
            return () if self._program.ended() else self._program.wake_fds
        return self._launcher.wake_fds if self._must_start and self._waits_for == WAITS else ()

    @property
    def _current(self) -> TaskStatus:
        """The task's current status."""
        return self._status.now

    def begin(self) -> None:
        """Begin a new attempt, if an earlier process of this agent has begun the run."""
        if self._current.state is not State.PENDING:
            reason = "its agent restarted during the run"
            self._begin_attempt(Attempt(reason, Cause.NODE_LOST, *self._span()))

    def step(self) -> bool:
        """Check everything once; return True when the task has ended and the others can see it.

        Raises:
            OSError: The volume cannot be read now. The next call continues.
        """
        if self._is_interrupted:
            return True
        self._status.retry()
        if self._current.state.ended:
            return self._has_ended
        statuses = self._statuses.refresh()
        self._peers.check()
        self._declare_lost(statuses)
        self._inject(statuses)
        self._is_steady = False
        if self._program is not None and self._program.ended():
            self._finish(self._program, self._cancel_requested())
        elif self._shutdown.outcome is not None:
            self._escalate(statuses)
        elif self._must_start:
            self._check_stop(statuses)
            self._start_when_allowed(statuses)
        else:
            self._check_stop(statuses)
            if self._shutdown.outcome is None:
                self._allow_training(statuses)
                self._progress()
                states = {status.state for status in statuses.values()}
                # After the first end, poll fast: a service must notice the last end soon.
                self._is_steady = (
                    not self._request.spec.faults
                    and State.TRAINING in states
                    and not any(state.ended for state in states)
                )
        outcome = self._shutdown.outcome
        if outcome is not None and self._program is None and not self._current.state.ended:
            self._end(outcome)
        return self._is_interrupted or self._has_ended

    def interrupt(self, reason: str, *, grace_s: float = GRACE_S) -> None:
        """End the program because this agent must stop and may not restart."""
        # Nothing restarts an agent of a job of Slurm, which has no locks.
        restarts = self._request.spec.restarts if self._config.locks else 0
        self._may_restart = self._current.attempt < restarts
        self.stop(TaskOutcome(State.CANCELLED, reason, Cause.INTERRUPTED), grace_s=grace_s)

    def stop(self, outcome: TaskOutcome, *, grace_s: float = GRACE_S) -> None:
        """End the program: SIGTERM, and after the grace SIGKILL. The first outcome stays.

        A service gets SIGTERM when the other tasks have ended, at the latest after the grace. Until
        then the chief may save the variables that the service holds.
        """
        if self._shutdown.outcome is None:
            self._fault_injector.release()
        after_peers = self._is_service() and outcome.state is State.CANCELLED
        self._shutdown.decide(outcome, grace_s=grace_s, after_peers=after_peers)

    def abort(self) -> None:
        """Kill the program at once; write no status."""
        self._fault_injector.release()
        self._ring.close()
        if self._program is not None:
            self._program.reap()

    # ---- the start

    def _start_when_allowed(self, statuses: Mapping[str, TaskStatus]) -> None:
        """Start the program if it may start; otherwise publish what it waits for."""
        if self._shutdown.outcome is None and (outcome := self._without_program()) is not None:
            self.stop(outcome)
        if self._shutdown.outcome is not None:
            return
        try:
            self._waits_for = self._start_delay(statuses)
        except OSError as error:
            self.stop(TaskOutcome(State.FAILED, f"no rendezvous for Horovod: {error.strerror}"))
            return
        if self._waits_for:
            signs = self._current.signs_of_life
            if self._barrier.waits_for_time(statuses):
                signs = self._signs_of_life.count(0, lambda: None)  # it will start
            self._status.publish(
                replace(self._current, message=self._waits_for, signs_of_life=signs)
            )
            return
        self._must_start = False
        try:
            self._start()
        except OSError as error:
            path = command.program_path(self._config, self._request)
            self.stop(TaskOutcome(State.FAILED, f"{path} cannot be started: {error.strerror}"))

    def _start_delay(self, statuses: Mapping[str, TaskStatus]) -> str:
        """What the program waits for before it may start, as text; "" if it may start.

        Raises:
            OSError: Horovod's rendezvous cannot be started.
        """
        if not self._barrier.may_start(statuses):
            return self._barrier.waits_for(statuses)
        if not self._launcher.is_ready(self._request):
            return WAITS
        return "" if self._ring.is_ready(self._current.attempt) else ring.WAITS

    def _without_program(self) -> TaskOutcome | None:
        """The outcome of a task that has no program to start; else None."""
        if self._request.spec.program_of(self._config.task) is None:
            return TaskOutcome(State.SUCCEEDED, "this task has no program in this run")
        path = command.program_path(self._config, self._request)
        if not path.is_file():
            reason = f"no program {path}; put it into {self._config.scripts}"
            return TaskOutcome(State.FAILED, reason)
        return None

    def _start(self) -> None:
        config, request = self._config, self._request
        attempt = self._current.attempt
        environ = command.environ(config, request, attempt, os.environ)
        environ |= self._ring.environ(attempt)
        files = self._volume.files(request.run_id)
        files.mkdir(exist_ok=True)  # an earlier attempt may have removed it
        program, how = self._launcher.start(request, environ, files)
        try:
            self._output = Output(
                program.output,
                self._volume.records(request.run_id, config.task),
                self._volume.log(request.run_id, config.task),
                self._agent_log.echo,
                RecordTags(request.run_id, self._current.attempt, config.job, config.index),
                folder=str(command.program_folder(config, request)),
                shown_folder=request.spec.folder,
                record=request.spec.record,
                digest=self._digest,
            )
        except OSError:
            # Without an output thread the program would never end.
            program.reap()
            os.close(program.output)
            raise
        self._program = program
        self._oom_kills = OomKills.now()  # when the program starts
        self._output.start()
        name = command.program_path(config, request).name
        self._notify(f"{name} has started{how and f', {how}'}")
        if self._current.attempt:
            self._output.note(f"attempt {self._current.attempt} begins: {self._current.reason}")
        self._status.write(
            replace(
                self._current,
                state=State.STARTING,
                pid=program.pid,
                started_unix=self._now_unix(),
                message="",
            )
        )

    def _allow_training(self, statuses: Mapping[str, TaskStatus]) -> None:
        """Write the start file, which lets the program train, as soon as it may train."""
        if self._output is None or not self._request.spec.waits or self._start_file.exists():
            at = None if self._current.state is State.TRAINING else self._barrier.joins_at(statuses)
            self._waits_for = ""
            self._join_note = f"joins at step {at:,}" if at else ""
        elif not self._barrier.may_train(statuses):
            self._waits_for = self._barrier.waits_for(statuses) if self._output.started else ""
        else:
            try:
                self._start_file.parent.mkdir(exist_ok=True)
                write_atomically(
                    self._start_file, str(self._barrier.joins_at(statuses) or ""), durable=False
                )
                self._start_patience.succeed()
            except OSError as error:
                if self._start_patience.fail(error):
                    self.stop(self._cannot_write(error))

    def _restart(self, reason: str, cause: Cause | None) -> None:
        """Begin a new attempt after the program's end; it starts as soon as it may."""
        self._ring.close()
        self._begin_attempt(Attempt(reason, cause, *self._span()))
        self._restart_reason = None
        self._output = None
        self._must_start = True

    def _begin_attempt(self, ended: Attempt) -> None:
        """Write the status of a new attempt, and remove the start file of the last one."""
        with contextlib.suppress(OSError):  # a failing volume is reported when a write fails
            self._start_file.unlink(missing_ok=True)
        peers = self._statuses.refresh().values() if self._request.spec.gang else ()
        attempt = max([self._current.attempt + 1, *(peer.attempt for peer in peers)])
        self._status.write(
            TaskStatus(
                self._config.task,
                State.STARTING,
                attempt=attempt,
                reason=short(ended.reason, LONGEST_REASON),
                earlier=(*self._current.earlier, ended)[-_EARLIER:],
            )
        )

    def _now_unix(self) -> float:
        """The time in seconds since the epoch; a change of the clock in this run does not count."""
        return self._clock_offset_s + time.monotonic()

    def _span(self) -> tuple[float | None, float, int | None]:
        return self._current.started_unix, self._now_unix(), self._current.global_step

    # ---- while it runs

    def _progress(self) -> None:
        """Publish this task's progress for the other agents."""
        if self._output is not None:
            self._status.publish(self._reported(self._output))

    def _reported(self, output: Output) -> TaskStatus:
        """The status that the program's records give: state, step and message."""
        state = self._current.state
        if output.training:
            state = State.TRAINING
        elif output.started:
            state = State.READY
        return replace(
            self._current,
            state=state,
            # The reason for a restart is shown only while it starts; `earlier` keeps it.
            reason=self._current.reason if state is State.STARTING else "",
            global_step=output.global_step,
            stepped_unix=output.stepped_unix,
            signs_of_life=(
                self._signs_of_life.count(output.own_lines, cpu_time_s)
                if output.global_step is None
                else self._current.signs_of_life
            ),
            message=self._waits_for
            or self._join_note
            or self._fault_injector.current_fault
            or output.message,
        )

    def _inject(self, statuses: Mapping[str, TaskStatus]) -> None:
        """Inject the faults that are due."""
        if self._shutdown.outcome is not None:
            return
        step = highest_global_step(self._request, statuses)
        for line in self._fault_injector.step(self._program, self._barrier.elapsed_s, step):
            self._notify(line)
            if self._output is not None:
                self._output.note(line)

    def _check_stop(self, statuses: Mapping[str, TaskStatus]) -> None:
        """Stop or restart the program if there is a reason."""
        mine, request = statuses[self._config.task], self._request
        if self._output is not None and self._output.fault is not None:
            self.stop(self._cannot_write(self._output.fault))
        elif mine.state.ended:  # it is lost or unreadable, and the others see an end
            self.stop(TaskOutcome(mine.state, mine.reason, mine.cause))
        elif self._status.has_failed:
            self.stop(self._cannot_write(None))
        elif (cancelled := self._cancel_requested()) is not None:
            self.stop(cancelled, grace_s=0.0 if self._kill_file.exists() else GRACE_S)
        elif reason := outcomes.peer_failure(request, self._config.task, statuses):
            self.stop(TaskOutcome(State.CANCELLED, reason, Cause.PEER_LOST))
        elif self._is_service() and self._others_ended(statuses):
            self.stop(TaskOutcome(State.SUCCEEDED))
        elif 0 < request.spec.max_time_s <= self._barrier.elapsed_s:
            self._cancel_for_time(statuses)
        elif self._barrier.is_late(statuses):
            self.stop(outcomes.not_ready(request, mine, self._output))
        elif (still := self._stall.check(statuses)) and self._stall.is_reporter(
            self._config.task, statuses
        ):
            self.stop(outcomes.stalled(still))
        elif (reason := outcomes.peer_restarted(request, mine, statuses)) and not self._must_start:
            self._restart_reason = reason
            if self._program is not None:
                self._program.signal(signal.SIGKILL)
            else:
                self._restart(self._restart_reason, Cause.PEER_LOST)

    def _cancel_for_time(self, statuses: Mapping[str, TaskStatus]) -> None:
        """Cancel the run for all tasks; each agent reads the cancel file at its next poll."""
        limit_s, hint = self._request.spec.max_time_s, next_step(self._request, statuses)
        # If the volume refuses writes, the next step tries again.
        with contextlib.suppress(OSError):
            reason = f"the time limit of {limit_s:g} s is reached; {hint}"
            cancel(self._volume, self._request.run_id, reason)

    def _escalate(self, statuses: Mapping[str, TaskStatus]) -> None:
        """Send the next due signal to a program that must end."""
        if self._kill_file.exists():
            self.stop(TaskOutcome(State.CANCELLED), grace_s=0.0)
        if self._program is not None:
            self._shutdown.escalate(self._program, alone=self._others_ended(statuses))

    def _is_service(self) -> bool:
        # In a cluster of services only, there is no other task to wait for.
        return self._request.spec.is_service(self._config.task) and bool(self._request.others())

    def _others_ended(self, statuses: Mapping[str, TaskStatus]) -> bool:
        return all(statuses[task].state.ended for task in self._request.others())

    def _declare_lost(self, statuses: Mapping[str, TaskStatus]) -> None:
        # If the volume refuses writes, the next step tries again.
        with contextlib.suppress(OSError):
            self._peers.declare_lost(self._volume, self._request.run_id, statuses)

    # ---- the end

    def _finish(self, program: ChildProcess | ForkedProgram, cancelled: TaskOutcome | None) -> None:
        """Handle the program's end: drain its pipe, kill its orphans, and decide what follows.

        Args:
            program: The program, which has ended.
            cancelled: The outcome if the user has cancelled the run.
        """
        assert self._output is not None  # noqa: S101 (a program has an output)
        self._fault_injector.release()
        code = program.reap()
        self._output.finish(_DRAIN_S, self._beat)
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
            self._shutdown.outcome = self._cannot_write(self._output.fault)
        if self._shutdown.outcome is None and (code != 0 or self._restart_reason is not None):
            fault = self._fault_injector.ending_fault(program)
            self._shutdown.outcome = cancelled or self._handle_failure(code, self._output, fault)
        elif self._shutdown.outcome is not None and code > 0:
            own = self._failed(code, self._output)
            self._shutdown.outcome = outcomes.same_failure(self._shutdown.outcome, own)
        if self._shutdown.outcome is not None:
            self._end(self._shutdown.outcome)
        elif self._must_start:
            return
        elif self._is_service():
            # Its service is complete. The other tasks decide whether the run succeeds.
            reason = "its program has ended; the others have not"
            self._status.write(
                replace(self._current, state=_state_after_exit(self._current.state), reason=reason)
            )
        else:
            self._end(TaskOutcome(State.SUCCEEDED))

    def _handle_failure(self, code: int, output: Output, fault: str) -> TaskOutcome | None:
        """The outcome after a failure of a program that was not stopped; None: it restarts."""
        failed = self._failed(code, output, fault)
        if self._restart_reason is not None:
            self._restart(self._restart_reason, Cause.PEER_LOST)
        elif outcomes.may_start_again(self._request, self._current, self._statuses.refresh()):
            self._notify(f"{failed.reason}; it starts again")
            self._restart(failed.reason, failed.cause)
        else:
            return failed
        return None

    def _failed(self, code: int, output: Output, fault: str = "") -> TaskOutcome:
        ps_count = len(self._request.cluster.get("ps", ()))
        kills = self._oom_kills, OomKills.now()
        return outcomes.failed(code, output, kills, ps_count=ps_count, fault=fault)

    def _cancel_requested(self) -> TaskOutcome | None:
        """The outcome if the user has cancelled the run; else None."""
        for path in (self._kill_file, self._volume.cancel(self._request.run_id)):
            if (reason := outcomes.cancel_reason(path)) is not None:
                return TaskOutcome(State.CANCELLED, reason, Cause.INTERRUPTED)
        return None

    def _notify(self, line: str) -> None:
        self._agent_log.notify(f"run {self._request.run_id}: {line}")

    def _cannot_write(self, error: OSError | None) -> TaskOutcome:
        return outcomes.cannot_write(self._config.runs, error)

    def _end(self, outcome: TaskOutcome) -> None:
        self._ring.close()
        if (
            self._may_restart
            and outcome.cause is Cause.INTERRUPTED
            and self._cancel_requested() is None
        ):
            # A restarted agent continues with a new attempt; if none starts, the task is lost.
            self._is_interrupted = True
            return
        given_up = self._statuses.refresh()[self._config.task]
        if given_up.state.ended:
            # The other agents have already reacted to this end, so the state stays.
            outcome = TaskOutcome(given_up.state, given_up.reason, given_up.cause)
        ended = replace(
            self._current,
            records_sha256=self._digest.hexdigest(),
            records_lost=self._records_lost,
            state=outcome.state,
            reason=outcome.reason,
            cause=outcome.cause,
            ended_unix=self._now_unix(),
        )
        self._status.write(ended)
        why = f": {outcome.reason}" if outcome.reason else ""
        self._notify(f"{outcome.state}{why}")
