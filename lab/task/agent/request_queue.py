"""The requests on the run volume, as one agent reads them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from lab.task.agent.agent_log import AgentLog
from lab.text import short
from lab.volume import Request, Volume
from lab.volume.files import read_regular
from lab.volume.states import State
from lab.volume.status import read_status, write_lost

_LOOK_ANYWAY_S = 2.0


class RequestQueue:
    """The requests directory, read again only when it has changed.

    The names of handled requests are cached. So an idle agent needs one `stat` per poll, even on a
    volume with a hundred runs.
    """

    def __init__(self, volume: Volume, task: str, agent_log: AgentLog) -> None:
        self._volume = volume
        self._task = task
        self._agent_log = agent_log
        self._known: set[str] = set()
        self._changed: int | None = None
        self._looked = 0.0

    def next(self) -> Request | None:
        """The oldest request that this task has not executed yet.

        A request that has begun and not ended belongs to an earlier process of this agent. It is
        executed again if the run's policy allows restarts; otherwise the task is lost.

        Raises:
            OSError: The volume cannot be read, or the lost status cannot be written.
        """
        try:
            return self._oldest(self._new_names())
        except OSError:
            self._changed = None  # the next call reads the directory again
            raise

    def _oldest(self, names: Sequence[str]) -> Request | None:
        waiting = []
        for name in names:
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
        if waiting:
            self._changed = None  # it stays the next one until it is marked as served
        return min(
            waiting, key=lambda request: (request.submitted_unix, request.run_id), default=None
        )

    def mark_served(self, request: Request) -> None:
        """Ignore this request from now on."""
        self._known.add(f"{request.run_id}.json")

    def _new_names(self) -> list[str]:
        folder, now = self._volume.requests, time.monotonic()
        try:
            changed = folder.stat().st_mtime_ns
            # A file system's clock is coarse: two requests can have the same time.
            if changed == self._changed and now - self._looked < _LOOK_ANYWAY_S:
                return []
            # Unlike `glob`, `iterdir` does not hide errors.
            names = [path.name for path in folder.iterdir() if path.suffix == ".json"]
        except FileNotFoundError:
            return []
        self._changed, self._looked = changed, now
        return [name for name in names if name not in self._known and not name.startswith(".")]

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
