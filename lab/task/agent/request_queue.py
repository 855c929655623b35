"""The requests on the run volume, as one agent reads them."""

from __future__ import annotations

import os

from lab.task.agent.agent_log import AgentLog
from lab.text import short
from lab.volume import Request, Volume
from lab.volume.files import read_regular
from lab.volume.states import State
from lab.volume.status import read_status, write_lost


class RequestQueue:
    """The requests of one task; a handled one is not read again."""

    def __init__(self, volume: Volume, task: str, agent_log: AgentLog) -> None:
        self._volume = volume
        self._task = task
        self._agent_log = agent_log
        self._known: set[str] = set()

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
                reason = "its agent restarted during the run"
                write_lost(path, status, reason)
                self._agent_log.notify(f"run {request.run_id}: lost: {reason}")
        return min(
            waiting, key=lambda request: (request.submitted_unix, request.run_id), default=None
        )

    def mark_served(self, request: Request) -> None:
        """Ignore this request from now on."""
        self._known.add(f"{request.run_id}.json")

    def _new_names(self) -> list[str]:
        try:
            # Unlike `glob`, `listdir` does not hide errors.
            names = os.listdir(self._volume.requests)  # noqa: PTH208  (ten times a second)
        except FileNotFoundError:
            return []
        new = set(names) - self._known
        return [name for name in new if name.endswith(".json") and not name.startswith(".")]

    def _read(self, name: str) -> Request | None:
        try:
            request = Request.from_json(read_regular(self._volume.requests / name))
        except FileNotFoundError:
            return None
        except ValueError as error:
            self._agent_log.notify(f"requests/{short(name)} is not a request: {short(str(error))}")
            self._known.add(name)  # requests are written atomically, so this one will not change
            return None
        return request if name == f"{request.run_id}.json" else None
