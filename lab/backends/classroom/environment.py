"""An environment of the queue, as its seat sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final, TypeVar

from lab.backends.classroom.client import Queue
from lab.backends.classroom.protocol import Gone, NetworkFault, State, Status
from lab.backends.classroom.state import EnvironmentRecord, StateDir
from lab.backends.directory import ReportingEnvironment
from lab.backends.environment import TaskInfo
from lab.backends.environment_dir import record_text
from lab.backends.names import CLASS
from lab.errors import InputError, LabError
from lab.gpu.evidence import GpuView
from lab.volume import Chunk, control
from lab.volume.continuation import mark_lost, next_step
from lab.volume.status import read_statuses

T = TypeVar("T")

_END_S: Final = 90.0
"""Seconds that the queue has to end an environment."""

_FRESH_S: Final = 2.0
"""Seconds for which an answer of the queue counts as new."""


class ClassEnvironment(ReportingEnvironment[EnvironmentRecord]):
    """An environment of the queue; its files are on the disk of the seat. See `Environment`."""

    backend = CLASS
    is_local = False

    def __init__(
        self, state_dir: StateDir, record: EnvironmentRecord, queue: Queue | None = None
    ) -> None:
        """Create the object.

        Args:
            state_dir: Its directory.
            record: Its record.
            queue: The queue; None: outside a seat, where it has ended.
        """
        super().__init__(state_dir, record)
        self._queue = queue
        self._status: Status | None = None
        self._asked_s: float | None = None

    @property
    def is_up(self) -> bool:
        """Whether its containers run."""
        status = self.status()
        return status is not None and status.state in {State.UP, State.ENDING}

    def status(self) -> Status | None:
        """Return its status, which may be some seconds old; None: the queue no longer has it.

        If the queue does not answer, the last status counts: the run goes on without the queue.

        Raises:
            LabError: The queue does not answer, and has never answered.
        """
        if self._asked_s is None or time.monotonic() - self._asked_s > _FRESH_S:
            try:
                return self.refresh(waits=self._status is None)
            except LabError:
                if self._status is None:
                    raise
                self._asked_s = time.monotonic()
        return self._status

    def refresh(self, revision: int | None = None, *, waits: bool = True) -> Status | None:
        """Ask the queue for its status; None: the queue no longer has it.

        Args:
            revision: Wait until the revision is another one, with a time limit.
            waits: Whether to wait for a queue that is down.

        Raises:
            LabError: The queue does not answer.
        """
        found = None
        if self._queue is not None:
            query = "" if revision is None else f"?revision={revision}"
            queue = self._queue if waits else replace(self._queue, patience_s=0.0)
            with suppress(Gone):
                answer = queue.request("GET", f"/environment{query}")
                found = converted(answer, Status)
        is_this = found is not None and found.id == self._record.id
        self._status, self._asked_s = found if is_this else None, time.monotonic()
        return self._status

    def tasks(self) -> list[TaskInfo]:
        """All tasks, in the plan's order."""
        status = self.status()
        return self.tasks_in("the queue has ended it" if status is None else str(status.state))

    def stopped(self) -> LabError:
        """The error for an environment that has stopped, or waits for its turn."""
        status, what = self._status, f"the environment {self.project!r} of the queue"
        if status is not None and status.state in {State.WAITING, State.GRANTED}:
            return LabError(f"{what} waits for its turn", "see `lab ls`")
        reason = f": {status.reason}" if status is not None and status.reason else ""
        return LabError(
            f"{what} has ended{reason}",
            f"boot it again with `lab up`; its runs are in {self._state_dir.runs}",
        )

    def mark_ends(self) -> None:
        """Mark the tasks without an end as lost, when the containers have ended."""
        with self._volume_errors():
            mark_lost(self._volume, "the queue ended the containers")

    def stream(
        self,
        run_id: str,
        offsets: Mapping[str, int],
        *,
        follow: bool,
        all_sizes: bool = False,
        rest: bool = False,
    ) -> Iterator[Chunk | None]:
        """Stream the files of a run; see `Environment`. When the turn ends, cancel the run."""
        for chunk in super().stream(run_id, offsets, follow=follow, all_sizes=all_sizes, rest=rest):
            if follow:
                self._end_with_its_turn(run_id)
            yield chunk

    def _end_with_its_turn(self, run_id: str) -> None:
        """Cancel a run if the queue ends the turn, so that the programs save their state."""
        status = self.status()
        if status is not None and status.state is State.ENDING:
            with self._volume_errors():
                request = control.find(self._volume, run_id)
                statuses = read_statuses(self._volume, request)
                if not all(each.state.ended for each in statuses.values()):
                    # A second cancellation changes nothing.
                    reason = f"{status.reason}; {next_step(request, statuses)}"
                    control.cancel(self._volume, run_id, reason)

    def block_host(self) -> None:
        """Do nothing: the queue has blocked the host at the boot."""

    def inject_network_fault(self, node: str, arguments: Sequence[str]) -> None:
        """Inject a fault into a node's network; see `Environment`."""
        fault = NetworkFault(node=node, arguments=tuple(arguments))
        self._asked_queue().request("POST", "/environment/fault", asdict(fault))

    def shell(self, task: str) -> list[str]:
        """Refuse: a seat has no shell in the containers of the host.

        Raises:
            InputError: Always.
        """
        raise InputError(
            "`lab shell` opens no shell in an environment of the queue",
            "use `lab logs`, or `--backend local`",
        )

    def probe_gpus(self, *, tensorflow: bool) -> dict[str, GpuView]:
        """Probe nothing: the queue verifies the GPUs at the boot."""
        return {}

    def provenance(self) -> dict[str, str]:
        """What really ran: image digest, versions of engine and kernel."""
        status = self.status()
        return {} if status is None else dict(status.provenance)

    def boot_file(self) -> tuple[str, str]:
        """`environment.json`: the record of this environment."""
        return self._state_dir.record.name, record_text(self._record)

    def stop(self, *, gently: bool = True) -> None:
        """Give it back, and wait until the queue has ended it; see `RecordedEnvironment`.

        Raises:
            LabError: The queue does not end it.
        """
        del gently
        until = time.monotonic() + _END_S
        status = self.refresh()
        while status is not None:
            with suppress(Gone):
                self._asked_queue().request("DELETE", f"/environment?id={self._record.id}")
            status = self.refresh(status.revision)
            if time.monotonic() > until:
                raise LabError(
                    f"the queue has not ended {self.project} after {_END_S:g} s", "see `lab ls`"
                )

    def _asked_queue(self) -> Queue:
        if self._queue is None:
            raise self.stopped()
        return self._queue


def converted(value: Any, kind: type[T]) -> T:  # noqa: ANN401  (JSON)
    """Return an answer of the queue as an object of its type.

    Raises:
        LabError: It has another type.
    """
    import msgspec  # noqa: PLC0415  (only a seat needs it)

    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise LabError(
            f"the queue has another version of lab than this seat: {error}", "ask your teacher"
        ) from error
