"""An environment of the queue, as its seat sees it, and its directory in the seat.

The directory `<state>/class/<project>/` holds `environment.json`, the run volume `runs/` and the
agents' output in `output/`. The containers of the environment mount the seat's home directory, and
so have the same paths.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from lab.backends.classroom.protocol import PATIENCE_S, Gone, Queue, State, Status
from lab.backends.directory import ReportingEnvironment
from lab.backends.environment import TaskInfo
from lab.backends.environment_dir import EnvironmentDir, Record, TaskRecord, record_text
from lab.backends.names import CLASS
from lab.errors import InputError, LabError
from lab.gpu.verification import GpuView
from lab.volume import Chunk, control
from lab.volume.continuation import mark_lost, next_step
from lab.volume.status import read_statuses

_FRESH_S: Final = 2.0
"""Seconds for which an answer of the queue counts as new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRecord(Record):
    """One environment, as stored in `environment.json`, with its id in the queue."""

    id: str
    tasks: tuple[TaskRecord, ...]


class StateDir(EnvironmentDir[EnvironmentRecord]):
    """The state directory of one environment."""

    backend = CLASS
    record_type = EnvironmentRecord
    hint = "wait until the queue has ended the environment"


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
            queue: The queue; None outside a seat, where it has ended.
        """
        super().__init__(state_dir, record)
        self._queue = queue
        self._status: Status | None = None
        self._asked_s = -math.inf

    @property
    def is_up(self) -> bool:
        """Whether its containers run."""
        status = self.status()
        return status is not None and status.state in {State.UP, State.ENDING}

    def status(self) -> Status | None:
        """Return its status, which may be some seconds old; None if the queue no longer has it.

        If the queue does not answer, the last status counts: the run continues without the queue.

        Raises:
            LabError: The queue does not answer, and has never answered.
        """
        if time.monotonic() - self._asked_s < _FRESH_S:
            return self._status
        if self._status is None:
            return self.refresh()
        try:
            return self.refresh(patience_s=0.0)
        except LabError:
            self._asked_s = time.monotonic()
            return self._status

    def refresh(self, patience_s: float = PATIENCE_S) -> Status | None:
        """Ask the queue for its status; None if the queue no longer has it.

        Args:
            patience_s: Seconds for which to wait for a queue that is down.

        Raises:
            LabError: The queue does not answer.
        """
        status = None
        if self._queue is not None:
            with suppress(Gone):
                status = self._queue.request(Status, "GET", patience_s=patience_s)
        is_this = status is not None and status.id == self._record.id
        self._status, self._asked_s = status if is_this else None, time.monotonic()
        return self._status

    def tasks(self) -> list[TaskInfo]:
        """All tasks, in the plan's order."""
        status = self.status()
        return self.tasks_in("the queue has ended it" if status is None else str(status.state))

    def stopped(self) -> LabError:
        """The error for an environment that has stopped, or waits for its turn."""
        status, name = self._status, f"the environment {self.project!r} of the queue"
        if status is not None and status.state in {State.WAITING, State.GRANTED}:
            return LabError(f"{name} waits for its turn", "see `lab ps`")
        reason = f": {status.reason}" if status is not None and status.reason else ""
        return LabError(
            f"{name} has ended{reason}",
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
                if not all(task.state.ended for task in statuses.values()):
                    # A second cancellation changes nothing.
                    reason = f"{status.reason}; {next_step(request, statuses)}"
                    control.cancel(self._volume, run_id, reason)

    def block_host(self) -> None:
        """Do nothing: the queue has blocked the host at the boot."""

    def shell(self, task: str) -> list[str]:
        """Refuse: a seat has no shell in the containers of the host.

        Raises:
            InputError: Always.
        """
        raise InputError(
            "`lab shell` opens no shell in an environment of the queue",
            "use `lab logs`, or `--backend local`",
        )

    def probe_gpus(self) -> dict[str, GpuView]:
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
        if self._queue is not None:
            with suppress(Gone):
                self._queue.end({self.project: f"?id={self._record.id}"})
        self._status, self._asked_s = None, time.monotonic()
