"""The task agent: the one way in which a training program starts, on every backend.

`python -m lab.task.agent` says where it lives and waits for requests on the run volume
(`lab.task.protocol`). It starts the program as its own child, is the only writer of the task's
output, watches the other tasks, and ends the program when the run is over. It needs nothing but
the standard library.

With `LAB_EXPERIMENT` the leader's agent writes one request itself, leaves when that run has ended,
and its exit code says how; the other agents stay until they are told to go.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from types import FrameType

from lab.task.agent import oneshot
from lab.task.agent.agent_config import AgentConfig, AgentConfigError
from lab.task.agent.agent_log import AgentLog
from lab.task.agent.execution import POLL_S, Execution
from lab.task.agent.launcher import Launcher, launcher_of
from lab.task.agent.process import set_subreaper
from lab.task.agent.request_queue import RequestQueue
from lab.task.protocol import Request, Volume
from lab.task.protocol.control import VolumeBusy, submit
from lab.task.protocol.heartbeat import Heartbeat

_SUBMIT_AGAIN_S = 1.0
_EXIT_USAGE = 2


class StopSignal:
    """Why the agent is to go: a signal, or the end of its leash; wakes a waiting agent.

    Attributes:
        reason: In words; None while it is to stay.
        count: How often it was told.
    """

    def __init__(self, *, leash: bool) -> None:
        """Listen.

        Args:
            leash: Standard input is a pipe whose end says that the supervisor has gone.
        """
        self.reason: str | None = None
        self.count = 0
        self._leash = leash
        self._awake, waker = socket.socketpair()
        self._waker = waker  # kept open
        for end in (self._awake, waker):
            end.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._reported)

    def wait(self, at_most_s: float, also: Sequence[int] = ()) -> None:
        """Sleep until a signal comes, the leash ends, or the time is over.

        Args:
            at_most_s: Seconds.
            also: Further descriptors; it wakes when one of them gets readable, and reads none.
        """
        own = [self._awake.fileno(), *([sys.stdin.fileno()] if self._leash else [])]
        watched = [*own, *also]
        ready, _, _ = select.select(watched, [], [], at_most_s)
        if self._awake.fileno() in ready:
            self._awake.recv(4096)
        if self._leash and sys.stdin.fileno() in ready and not os.read(sys.stdin.fileno(), 4096):
            self._leash = False
            self.reason = "the supervisor has gone"
            self.count += 1

    def _reported(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.reason = f"the agent was stopped ({signal.Signals(number).name})"
        self.count += 1


class Agent:
    """Serves one request after the other."""

    def __init__(
        self, place: AgentConfig, agent_log: AgentLog, stop: StopSignal, starter: Launcher
    ) -> None:
        self._place = place
        self._agent_log = agent_log
        self._stop = stop
        self._starter = starter
        self._volume = Volume(place.runs)
        self._heartbeat = Heartbeat(
            self._volume, place.task, node=place.node, address=place.address, gpus=place.gpus
        )
        self._inbox = RequestQueue(self._volume, place.task, agent_log)
        self._execution: Execution | None = None
        self._own: Request | None = None  # what the leader has to submit
        self._submit_at = 0.0
        self._verdict: oneshot.RunOutcome | None = None

    def run(self, own: Request | None) -> int:
        """Serve until told to go; with a request of its own, until that run has ended.

        Returns:
            The exit code.

        Raises:
            OSError: The run volume cannot be used.
        """
        self._own = own
        leads = own is not None
        self._heartbeat.announce()
        self._greet()
        try:
            while self._stop.reason is None:
                self._heartbeat.beat()
                self._serve()
                idle = self._execution is None
                code = self._verdict.exit_code() if idle and self._verdict else None
                if code is not None:
                    return self._conclude(code)
                if self._execution is None:
                    self._stop.wait(POLL_S)
                else:
                    self._stop.wait(self._execution.pause_s, self._execution.wakes)
            self._wind_up(self._stop.reason)
        finally:
            if self._execution is not None:
                self._execution.abort()
        self._heartbeat.remove()
        return int(leads)

    def _serve(self) -> None:
        if self._execution is None:
            self._submit_own()
            request = self._inbox.next()
            if request is None:
                return
            self._inbox.mark_served(request)
            self._execution = Execution(self._place, request, self._agent_log, self._starter)
            self._execution.begin()
        if self._execution.step():
            self._execution = None

    def _submit_own(self) -> None:
        """The leader's request, as soon as what an earlier life left under way has ended."""
        if self._own is None or time.monotonic() < self._submit_at:
            return
        try:
            submit(self._volume, self._own)
        except VolumeBusy as busy:
            self._agent_log.notify(f"waiting: {busy}")
            self._submit_at = time.monotonic() + _SUBMIT_AGAIN_S
            return
        self._verdict = oneshot.RunOutcome(self._volume, self._own, self._place.task)
        self._own = None

    def _conclude(self, code: int) -> int:
        assert self._verdict is not None  # noqa: S101 (narrows the type)
        for line in self._verdict.lines():
            self._agent_log.notify(line)
        self._heartbeat.remove()
        return code

    def _wind_up(self, reason: str) -> None:
        """Told to go: end the program first; told again: at once."""
        if self._execution is None:
            return
        reported = 1
        self._execution.leave(reason)
        while not (self._execution.step() or self._execution.cannot_end):
            self._heartbeat.beat()
            self._stop.wait(POLL_S, self._execution.wakes)
            if self._stop.count > reported:
                reported = self._stop.count
                self._execution.leave(reason, grace_s=0.0)
        self._execution = None

    def _greet(self) -> None:
        place = self._place
        self._agent_log.notify(
            f"{place.task} of {place.project} lives on {place.node}, "
            f"serves at {place.address}, GPUs: {place.gpus}"
        )
        if not place.experiment:
            self._agent_log.notify("it waits for a run; start one with: python -m lab run async")
        elif place.leads:
            self._agent_log.notify(f"it starts {place.experiment} now")
        else:
            self._agent_log.notify(f"it waits for {place.experiment}, which another task starts")


def main() -> int:
    """Run the agent of this process's environment; returns its exit code."""
    try:
        place = AgentConfig.from_environ(os.environ)
        own = oneshot.request_for(place) if place.experiment and place.leads else None
    except (AgentConfigError, oneshot.OneshotError) as error:
        sys.stderr.write(f"error: {error}\n")
        return _EXIT_USAGE
    set_subreaper()
    agent_log = AgentLog(stamped=os.environ.get("LAB_STAMPS") == "1")
    stop = StopSignal(leash=os.environ.get("LAB_LEASH") == "stdin")
    try:
        return Agent(place, agent_log, stop, launcher_of(place, os.environ)).run(own)
    except OSError as error:
        agent_log.notify(f"error: the run volume {place.runs} cannot be used: {error}; see to it")
        return 1
