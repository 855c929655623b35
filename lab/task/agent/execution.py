"""The execution of one run by one task's agent, from the request to the end."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Final

from lab.protocol.volume import Request, Volume
from lab.protocol.volume.clock import Stopwatch
from lab.protocol.volume.continuation import next_step
from lab.protocol.volume.control import cancel
from lab.protocol.volume.heartbeat import PeerMonitor
from lab.protocol.volume.states import Cause, State
from lab.protocol.volume.status import Statuses, TaskStatuses
from lab.task.agent import command, outcomes, starts
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.agent_log import AgentLog
from lab.task.agent.connections import Contact
from lab.task.agent.ending import GRACE_S, Ending
from lab.task.agent.fault_injection import FaultInjector
from lab.task.agent.fork_client import ForkClient
from lab.task.agent.outcomes import TaskOutcome
from lab.task.agent.own_status import OwnStatus
from lab.task.agent.process import is_stopped
from lab.task.agent.program import WAITS, Program, ProgramStarter

POLL_S: Final = 0.1
_STEADY_POLL_S: Final = 0.3  # a program's end wakes the agent at once
_STOP_LOOK_S: Final = 1.0
_TOGETHER_POLL_S: Final = 0.005  # per task; waiting tasks poll faster, so that they begin together


@dataclass(eq=False)
class Execution:
    """Starts the program, watches it and the other tasks, and ends it.

    `starts` and `outcomes` decide, and this class applies their decisions; `OwnStatus` writes what
    happens, and `Ending` ends the task. Before the agent stops a program, it decides the *outcome*
    of the task. The exit code does not change this outcome.

    Attributes:
        config: The agent's settings.
        request: The run.
        agent_log: Receives lines for the user.
        fork_client: The connection to the fork server; None: there is no fork server.
        beat: Updates the agent's heartbeat; called while a step takes long.
        pause_s: Seconds until the next poll, unless something wakes the agent.
    """

    config: AgentConfig
    request: Request
    agent_log: AgentLog
    fork_client: ForkClient | None
    beat: Callable[[], None]

    def __post_init__(self) -> None:
        """Prepare the execution; it changes nothing.

        Raises:
            OSError: The volume cannot be read.
        """
        config, request = self.config, self.request
        self._volume = volume = Volume(config.runs)
        self._status = OwnStatus(
            volume,
            request,
            config.task,
            lambda error: self.agent_log.notify(self._cannot_write(error).reason),
        )
        self._statuses = Statuses(volume, request.run_id, request.tasks())
        self._statuses.refresh()  # later calls raise no error
        peers = [task for task in request.tasks() if task != config.task]
        self._peers = PeerMonitor(volume, peers, patient=request.spec.restarts > 0)
        # An earlier process of this agent may have begun the run.
        elapsed_s = max(0.0, self._status.now_unix() - request.submitted_unix)
        self._submitted = time.monotonic() - elapsed_s
        self._fault_injector = FaultInjector(request, config.task, config.node, volume)
        self._starter = ProgramStarter(config, request, self.agent_log, self.fork_client, self.beat)
        self._ending = Ending(
            volume,
            request,
            status=self._status,
            statuses=self._statuses,
            starter=self._starter,
            fault_injector=self._fault_injector,
            notify=self._notify,
        )
        self._contact = Contact(
            config.address, [*chain(*request.cluster.values())], talked=self._status.now.talked
        )
        self._awaited = Stopwatch()  # of the start
        self._unchanged = Stopwatch()  # of the run's progress
        # The following ones change during the run.
        self._program: Program | None = None  # None: it starts as soon as it may
        self._restart_reason = ""  # why the program ends and starts again
        self._waits_for = ""  # why it is not training yet
        self._stopped_note = ""  # that something has stopped its program, as text
        self._stop_look_s = 0.0  # how long the run had waited at the last check for it
        self._join_note = ""  # the step at which its program joins, as text
        self.pause_s = POLL_S

    @property
    def wake_fds(self) -> tuple[int, ...]:
        """Descriptors that get readable when the agent must act before the next poll."""
        if self._program is None:
            client = self.fork_client if self._waits_for == WAITS else None
            return () if client is None else client.wake_fds
        return () if self._program.process.ended() else self._program.process.wake_fds

    @property
    def cannot_end(self) -> bool:
        """Whether the task has ended and the volume refuses its final status."""
        return self._status.now.state.ended and self._status.has_failed

    @property
    def _has_ended(self) -> bool:
        """Whether the task has ended, and the other tasks can see that."""
        return self._status.now.state.ended and (
            self._status.is_written or self._statuses.refresh()[self.config.task].state.ended
        )

    @property
    def _elapsed_s(self) -> float:
        """Seconds since the run was submitted."""
        return time.monotonic() - self._submitted

    @property
    def _running(self) -> Program | None:
        """The program, until its end was handled."""
        return self._program if self._program is not None and self._program.is_running else None

    def begin(self) -> None:
        """Begin a new attempt, if an earlier process of this agent has begun the run."""
        if self._status.now.state is not State.PENDING:
            self._begin_attempt("its agent restarted during the run", Cause.NODE_LOST)

    def step(self) -> bool:
        """Check everything once; return True when the task has ended and the others can see it.

        Raises:
            OSError: The volume cannot be read now. The next call continues.
        """
        ending = self._ending
        if ending.is_interrupted:
            return True
        self._status.retry()
        if self._status.now.state.ended:
            return self._has_ended
        statuses = self._statuses.refresh()
        self._peers.check()
        with contextlib.suppress(OSError):  # if the volume refuses it, the next step tries again
            self._peers.declare_lost(self._volume, self.request.run_id, statuses)
        self._inject(statuses)
        self.pause_s = POLL_S
        program, running = self._program, self._running
        if running is not None and running.process.ended():
            self._finish(running, ending.cancelled())
        elif ending.outcome is not None:
            ending.escalate(running, statuses)
        else:
            self._check_stop(statuses)
            if ending.outcome is None and program is None:
                self._start_when_allowed(statuses)
            elif ending.outcome is None and self._program is not None:
                self._train(self._program, statuses)
        if ending.outcome and self._running is None and not self._status.now.state.ended:
            ending.end(ending.outcome)
        return ending.is_interrupted or self._has_ended

    def interrupt(self, reason: str, *, grace_s: float = GRACE_S) -> None:
        """End the program because this agent must stop and may not restart."""
        # Nothing restarts an agent of a job of Slurm, which has no locks.
        restarts = self.request.spec.restarts if self.config.locks else 0
        self._ending.may_restart = self._status.now.attempt < restarts
        self._ending.stop(TaskOutcome(State.CANCELLED, reason, Cause.INTERRUPTED), grace_s=grace_s)

    def abort(self) -> None:
        """Kill the program at once; write no status."""
        self._fault_injector.release()
        self._starter.ring.close()
        if self._running is not None:
            self._running.process.reap()

    # ---- the start

    def _start_when_allowed(self, statuses: TaskStatuses) -> None:
        """Start the program if it may start; otherwise publish what it waits for."""
        if (outcome := self._starter.without_program()) is not None:
            self._ending.stop(outcome)
            return
        request, task, elapsed_s = self.request, self.config.task, self._elapsed_s
        path = command.program_path(self.config, request)
        try:
            if starts.may_start(request, task, statuses, elapsed_s):
                self._waits_for = self._starter.waits_for(self._status.now.attempt)
            else:
                self._waits_for = starts.waits_for(request, task, statuses, elapsed_s)
            if self._waits_for:
                for_time = starts.waits_for_time(request, task, statuses, elapsed_s)
                self._status.wait(self._waits_for, for_time=for_time)
                return
            self._program, how = self._starter.start(self._status.now.attempt)
        except OSError as error:
            reason = f"{path} cannot be started: {error.strerror}"
            self._ending.stop(TaskOutcome(State.FAILED, reason))
            return
        self._notify(f"{path.name} has started{how and f', {how}'}")
        if attempt := self._status.now.attempt:
            self._program.output.note(f"attempt {attempt} begins: {self._status.now.reason}")
        self._contact.begin(
            self._program.process.pid,
            is_launched=command.has_launcher(self.config, request),
            ignored_port=self._starter.ring.port(self._status.now.attempt),
        )
        self._status.start(self._program)

    def _train(self, program: Program, statuses: TaskStatuses) -> None:
        """Let the program train as soon as it may, and publish its progress."""
        self._allow_training(program, statuses)
        self._look_for_stop(program)
        others = (status for other, status in statuses.items() if other != self.config.task)
        self._contact.look(status.pid for status in others if status.pid)
        self._status.progress(program.output.parser, self._note, self._contact.talked)
        if starts.is_steady(self.request, statuses):
            self.pause_s = _STEADY_POLL_S
        elif self._waits_for and self._status.now.state is State.READY:
            self.pause_s = min(POLL_S, _TOGETHER_POLL_S * len(self.request.tasks()))

    def _allow_training(self, program: Program, statuses: TaskStatuses) -> None:
        """Write the start file, which lets the program train, as soon as it may train."""
        request, task = self.request, self.config.task
        joins_at = starts.joins_at(request, task, statuses)
        if not request.spec.waits or self._starter.may_train():
            joins = joins_at and self._status.now.state is not State.TRAINING
            self._waits_for = ""
            self._join_note = f"joins at step {joins_at:,}" if joins else ""
        elif not starts.may_train(request, task, statuses, self._elapsed_s):
            waits_for = starts.waits_for(request, task, statuses, self._elapsed_s)
            self._waits_for = waits_for if program.output.parser.started else ""
        else:
            try:
                self._starter.let_train(joins_at)
            except OSError as error:
                self._ending.stop(self._cannot_write(error))

    def _restart(self, reason: str, cause: Cause | None) -> None:
        """Begin a new attempt after the program's end; it starts as soon as it may."""
        self._starter.ring.close()
        self._begin_attempt(reason, cause)
        self._restart_reason = ""
        self._program = None

    def _begin_attempt(self, reason: str, cause: Cause | None) -> None:
        """Write the status of a new attempt, and remove the start file of the last one."""
        self._starter.forget_attempt()
        peers = self._statuses.refresh().values() if self.request.spec.gang else ()
        self._status.begin_attempt(reason, cause, peers)

    # ---- while it runs

    @property
    def _note(self) -> str:
        """What the agent reports about the program, or ""."""
        fault = self._fault_injector.current_fault
        return self._waits_for or fault or self._stopped_note or self._join_note

    def _look_for_stop(self, program: Program) -> None:
        """Check once a second, while the run waits, whether something has stopped the program."""
        waits_s = max(self._unchanged.seconds, self._awaited.seconds)
        if waits_s < _STOP_LOOK_S:
            self._stopped_note, self._stop_look_s = "", 0.0
        elif waits_s >= self._stop_look_s + _STOP_LOOK_S:
            self._stop_look_s = waits_s
            self._stopped_note = starts.STOPPED if is_stopped(program.process.pid) else ""

    def _inject(self, statuses: TaskStatuses) -> None:
        """Inject the faults that are due."""
        if self._ending.outcome is not None:
            return
        step = starts.highest_global_step(self.request, statuses)
        process = None if self._running is None else self._running.process
        trains = starts.trains(self.request, self.config.task, self._status.now, step)
        for line in self._fault_injector.step(process, self._elapsed_s, step, trains=trains):
            self._notify(line)
            if self._program is not None:
                self._program.output.note(line)

    def _check_stop(self, statuses: TaskStatuses) -> None:
        """Stop or restart the program if there is a reason."""
        request, task, program = self.request, self.config.task, self._program
        is_awaited = starts.awaited_task(request, statuses) is not None
        progress = outcomes.progress(request, statuses)
        must_progress = outcomes.must_progress(request, statuses)
        outcome = outcomes.outcome(
            request,
            task,
            statuses,
            elapsed_s=self._elapsed_s,
            awaited_s=self._awaited.look(counts=is_awaited),
            unchanged_s=self._unchanged.look(progress, counts=must_progress),
        )
        fault = None if program is None else program.output.fault
        if fault is not None or self._status.has_failed:
            self._ending.stop(self._cannot_write(fault))
        elif self._ending.stop_if_cancelled():
            return
        elif outcome is not None:
            self._ending.stop(outcome)
        elif outcomes.is_out_of_time(request, self._elapsed_s):
            # Each agent reads the cancel file at its next poll. If the volume refuses it, the next
            # step tries again.
            limit_s, hint = request.spec.max_time_s, next_step(request, statuses)
            with contextlib.suppress(OSError):
                why = f"the time limit of {limit_s:g} s is reached; {hint}"
                cancel(self._volume, request.run_id, why)
        elif program is not None and (reason := starts.peer_restarted(request, task, statuses)):
            self._restart_reason = reason
            if program.is_running:
                program.process.signal(signal.SIGKILL)
            else:
                self._restart(reason, Cause.PEER_LOST)

    # ---- the end

    def _finish(self, program: Program, cancelled: TaskOutcome | None) -> None:
        """Handle the program's end, and decide what follows.

        Args:
            program: The program, which has ended.
            cancelled: The outcome if the user has cancelled the run.
        """
        self._fault_injector.release()
        end = program.finish(self._fault_injector.ending_fault(program.process), self.beat)
        self._contact.end()
        self._status.end_program(program, end, self._note, self._contact.talked)
        ps_count = len(self.request.cluster.get("ps", ()))
        failed = outcomes.failed(end, ps_count=ps_count)
        mine, statuses = self._status.now, self._statuses.refresh()
        if program.output.fault is not None:
            self._ending.end(self._cannot_write(program.output.fault))
        elif (decided := self._ending.outcome) is not None:
            self._ending.end(outcomes.stopped(decided, failed, end, statuses))
        elif end.code == 0 and not self._restart_reason:
            self._succeed()
        elif cancelled is not None:
            self._ending.end(cancelled)
        elif self._restart_reason and end.code <= 0:  # else it failed by itself
            self._restart(self._restart_reason, Cause.PEER_LOST)
        elif starts.may_start_again(self.request, mine, statuses, failed.reason, failed.cause):
            self._notify(f"{failed.reason}; it starts again")
            self._restart(failed.reason, failed.cause)
        else:
            self._ending.end(failed)

    def _succeed(self) -> None:
        """End a task whose program has succeeded; a service waits for the other tasks.

        They decide whether the run succeeds.
        """
        if outcomes.is_service(self.request, self.config.task):
            self._status.wait_for_others()
        else:
            self._ending.end(TaskOutcome(State.SUCCEEDED))

    def _notify(self, line: str) -> None:
        self.agent_log.notify(f"run {self.request.run_id}: {line}")

    def _cannot_write(self, error: OSError | None) -> TaskOutcome:
        """The outcome if the run volume cannot be written."""
        detail = f": {error.strerror}" if error is not None else ""
        reason = f"the run volume {self.config.runs} cannot be written{detail}; make room on it"
        return TaskOutcome(State.FAILED, reason, Cause.VOLUME)
