"""Which request an agent has to serve next."""

from __future__ import annotations

import time

from lab.task.agent.agent_log import AgentLog
from lab.task.protocol import Request, Volume
from lab.task.protocol.files import read_regular
from lab.task.protocol.states import State
from lab.task.protocol.statuses import read_status, write_lost
from lab.task.text import short

_LOOK_ANYWAY_S = 2.0


class RequestQueue:
    """The requests directory, read again only where it has changed.

    Requests that this task has served stay known, so that a volume with a hundred runs costs an
    idle agent one `stat` a look.
    """

    def __init__(self, volume: Volume, task: str, agent_log: AgentLog) -> None:
        self._volume = volume
        self._task = task
        self._agent_log = agent_log
        self._known: set[str] = set()
        self._changed: int | None = None
        self._looked = 0.0

    def next(self) -> Request | None:
        """The oldest request that this task has not served yet.

        A request that this task had begun and not ended was begun by an agent that is no more:
        it is served again where the run's policy has its tasks restarted, else it is lost.

        Raises:
            OSError: The volume cannot be read, or a loss cannot be written.
        """
        waiting = []
        for name in self._new_names():
            request = self._read(name)
            if request is None or self._task not in request.tasks():
                self._known.add(name)
                continue
            path = self._volume.status(request.run_id, self._task)
            status = read_status(path, self._task)
            if status.state is State.PENDING or (
                not status.state.ended and status.attempt < request.spec.restarts
            ):
                waiting.append(request)
                continue
            self._known.add(name)
            if not status.state.ended:
                reason = "its agent was started again in the middle of the run"
                write_lost(path, status, reason)
                self._agent_log.notify(f"run {request.run_id}: lost: {reason}")
        return min(
            waiting, key=lambda request: (request.submitted_unix, request.run_id), default=None
        )

    def mark_served(self, request: Request) -> None:
        """This request is done with."""
        self._known.add(f"{request.run_id}.json")
        self._changed = None

    def _new_names(self) -> list[str]:
        try:
            changed = self._volume.requests.stat().st_mtime_ns
        except FileNotFoundError:
            return []
        now = time.monotonic()
        # The clock of a file system is coarse: two requests within one tick leave one time.
        if changed == self._changed and now - self._looked < _LOOK_ANYWAY_S:
            return []
        self._changed, self._looked = changed, now
        return [
            path.name
            for path in self._volume.requests.glob("[!.]*.json")
            if path.name not in self._known
        ]

    def _read(self, name: str) -> Request | None:
        try:
            request = Request.from_json(read_regular(self._volume.requests / name))
        except FileNotFoundError:
            return None
        except ValueError as error:
            self._agent_log.notify(f"requests/{short(name)} is no request: {short(str(error))}")
            self._known.add(name)  # a request comes whole, so that this one stays as it is
            return None
        return request if name == f"{request.run_id}.json" else None
