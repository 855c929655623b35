"""The task agent: it starts the training program of one task, on every backend.

The agent (`python -m lab.task.agent`) announces its task and waits for requests on the run volume
(`lab.protocol.volume`). It starts the program as its own child and is the only writer of the task's
output. It watches the other tasks, and ends the program when the run ends. It needs only the
standard library.
"""

from __future__ import annotations

import argparse
import math
import os
import select
import signal
import socket
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from lab.base.text import short
from lab.base.variables import LAB_OUTPUT, LAB_TASK
from lab.protocol.volume import Request, Volume
from lab.protocol.volume.files import REFUSED_S, Patience, read_regular
from lab.protocol.volume.heartbeat import Heartbeat
from lab.protocol.volume.states import State
from lab.protocol.volume.status import read_status, write_lost
from lab.task.agent.agent_config import AgentConfig, AgentConfigError
from lab.task.agent.agent_log import AgentLog
from lab.task.agent.execution import POLL_S, Execution
from lab.task.agent.fork_client import ForkClient
from lab.task.agent.process import set_subreaper

_EXIT_USAGE = 2
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_REPEATED_S = 0.5
"""Seconds in which a stop signal counts once. Slurm signals all processes of a step, and one of
them may forward the signal to the agent."""


class StopSignal:
    """Why the agent must stop: a signal, or the end of its leash. Either wakes a waiting agent.

    Attributes:
        reason: Text; None while the agent must not stop.
        count: The number of stop signals so far.
    """

    def __init__(self, *, leash: bool) -> None:
        """Install the signal handlers.

        Args:
            leash: Standard input is a pipe that closes when the supervisor ends.
        """
        self.reason: str | None = None
        self.count = 0
        self._counted_s = -math.inf
        self._leash = leash
        self._wake_read, self._wake_write = socket.socketpair()  # the second is kept open
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def wait(self, at_most_s: float, also: Sequence[int] = ()) -> None:
        """Sleep until a signal arrives, the leash ends, or the time is over.

        Args:
            at_most_s: Seconds.
            also: Further descriptors that end the sleep when readable. They are not read.
        """
        own = [self._wake_read.fileno(), *([sys.stdin.fileno()] if self._leash else [])]
        watched = [*own, *also]
        ready, _, _ = select.select(watched, [], [], at_most_s)
        if self._wake_read.fileno() in ready:
            self._wake_read.recv(4096)
        if self._leash and sys.stdin.fileno() in ready and not os.read(sys.stdin.fileno(), 4096):
            self._leash = False
            self.reason = "the supervisor has ended"
            self.count += 1

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.reason = f"the agent was stopped ({signal.Signals(number).name})"
        now = time.monotonic()
        if now - self._counted_s > _REPEATED_S:
            self.count, self._counted_s = self.count + 1, now


@dataclass(eq=False)
class RequestQueue:
    """The requests of one task; a handled one is not read again."""

    volume: Volume
    task: str
    agent_log: AgentLog
    _known: set[str] = field(default_factory=set)

    def next(self) -> Request | None:
        """The oldest request that this task has not executed yet.

        A request that has begun and not ended belongs to an earlier process of this agent. It is
        executed again if the run's policy allows restarts; otherwise the task is lost.

        Raises:
            OSError: The volume cannot be read, or the lost status cannot be written.
        """
        waiting = []
        for name in self._new_names():
            request = self._read(name)
            if request is None or self.task not in request.tasks():
                self._known.add(name)
                continue
            path = self.volume.status(request.run_id, self.task)
            status = read_status(path, self.task)
            if status.state is State.PENDING or (
                not status.state.ended and status.attempt < request.spec.restarts
            ):
                waiting.append(request)
                continue
            self._known.add(name)
            if not status.state.ended:
                reason = "its agent restarted during the run"
                write_lost(path, status, reason)
                self.agent_log.notify(f"run {request.run_id}: lost: {reason}")
        return min(
            waiting, key=lambda request: (request.submitted_unix, request.run_id), default=None
        )

    def mark_served(self, request: Request) -> None:
        """Ignore this request from now on."""
        self._known.add(f"{request.run_id}.json")

    def _new_names(self) -> list[str]:
        try:
            # Unlike `glob`, `listdir` does not hide errors.
            names = os.listdir(self.volume.requests)  # noqa: PTH208  (ten times a second)
        except FileNotFoundError:
            return []
        new = set(names) - self._known
        return [name for name in new if name.endswith(".json") and not name.startswith(".")]

    def _read(self, name: str) -> Request | None:
        try:
            request = Request.from_json(read_regular(self.volume.requests / name))
        except FileNotFoundError:
            return None
        except ValueError as error:
            # Requests are written atomically, so this one will not change.
            self.agent_log.notify(f"requests/{short(name)} is not a request: {short(str(error))}")
            return None
        return request if name == f"{request.run_id}.json" else None


@dataclass(eq=False)
class Agent:
    """Executes requests one after the other.

    Attributes:
        config: The settings.
        agent_log: Receives lines for the user.
        stop: Why and when it must stop.
        fork_client: The connection to the fork server; None: there is no fork server.
        once: Whether it ends after the first run.
    """

    config: AgentConfig
    agent_log: AgentLog
    stop: StopSignal
    fork_client: ForkClient | None = None
    once: bool = False

    def __post_init__(self) -> None:
        """Prepare the agent; it changes nothing."""
        config, notify = self.config, self.agent_log.notify
        self._is_done = False
        self._volume = Volume(config.runs)
        self._heartbeat = Heartbeat(
            self._volume,
            config.task,
            locks=config.locks,
            address=config.address,
            gpus=config.gpus,
        )
        self._queue = RequestQueue(self._volume, config.task, self.agent_log)
        self._execution: Execution | None = None
        self._patience = Patience(
            REFUSED_S,
            lambda error: notify(f"run volume {config.runs}: {error}; trying again"),
        )

    def run(self) -> None:
        """Execute requests until a stop signal, or only one.

        Raises:
            OSError: The run volume cannot be used.
        """
        config = self.config
        self._heartbeat.announce()
        self.agent_log.notify(
            f"{config.task} of {config.project} runs on {config.node}, "
            f"address {config.address}, GPUs: {config.gpus}"
        )
        self.agent_log.notify("waiting for a run; start one with: python -m lab run async")
        try:
            while self.stop.reason is None and not self._is_done:
                self._poll()
                if self._execution is None:
                    self.stop.wait(POLL_S)
                else:
                    self.stop.wait(self._execution.pause_s, self._execution.wake_fds)
            if self.stop.reason is not None:
                self._shut_down(self.stop.reason)
        finally:
            if self._execution is not None:
                self._execution.abort()
        self._heartbeat.remove()

    def _poll(self) -> None:
        """Send a heartbeat and serve; each one is tried even if the other fails.

        Raises:
            OSError: The run volume has failed for `REFUSED_S`.
        """
        with self._patience:
            try:
                self._heartbeat.beat()
            finally:
                self._serve_once()

    def _serve_once(self) -> None:
        if self._execution is None:
            request = self._queue.next()
            if request is None:
                return
            execution = Execution(
                self.config, request, self.agent_log, self.fork_client, self._heartbeat.beat
            )
            self._queue.mark_served(request)
            self._execution = execution
            self._execution.begin()
        if self._execution.step():
            self._execution = None
            self._is_done = self.once

    def _shut_down(self, reason: str) -> None:
        """End the program with a grace period; a second stop signal ends it at once."""
        execution = self._execution
        if execution is None:
            return
        signals_seen = 1
        execution.interrupt(reason)
        while self._execution is execution and not execution.cannot_end:
            self._poll()
            self.stop.wait(POLL_S, execution.wake_fds)
            if self.stop.count > signals_seen:
                signals_seen = self.stop.count
                execution.interrupt(reason, grace_s=0.0)
        self._execution = None


def _write_to(file: Path) -> None:
    """Append the output of this process to a file.

    Raises:
        OSError: The file cannot be written.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def main(arguments: Sequence[str] = ()) -> int:
    """Run the agent that the environment variables describe; return the exit code.

    Args:
        arguments: `--once` to end after the first run, `--leash` to end when standard input closes,
            `--forkserver FD` to fork programs by this socket.
    """
    if (folder := os.environ.get(LAB_OUTPUT)) and (task := os.environ.get(LAB_TASK)):
        _write_to(Path(folder) / f"{task}.log")
    try:
        config = AgentConfig.from_environ(os.environ)
    except AgentConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        return _EXIT_USAGE
    set_subreaper()
    parser = argparse.ArgumentParser("lab.task.agent", add_help=False)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--leash", action="store_true")
    parser.add_argument("--forkserver", type=int)
    options = parser.parse_args(arguments)
    agent_log = AgentLog(stamped=stat.S_ISREG(os.fstat(1).st_mode))
    stop = StopSignal(leash=options.leash)
    descriptor = options.forkserver
    fork_client = None if descriptor is None else ForkClient(socket.socket(fileno=descriptor))
    try:
        Agent(config, agent_log, stop, fork_client, once=options.once).run()
    except OSError as error:
        agent_log.notify(
            f"error: the run volume {config.runs} cannot be used: {error}; check its mount"
        )
        return 1
    else:
        return 0
    finally:
        # At its exit, Python restores the default actions, and a repeated signal would kill it.
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
