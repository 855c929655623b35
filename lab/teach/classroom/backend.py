"""The backend of a seat: asks the queue for an environment, and waits for its turn.

The directory `<state>/class/<project>/` holds `environment.json`, the run volume `runs/` and the
agents' output in `output/`. The containers of the environment mount the seat's home directory, and
so have the same paths.
"""

from __future__ import annotations

import math
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from lab.backends.base import RecordedBackend
from lab.backends.boot import Boot
from lab.backends.environment import Environment, TaskInfo
from lab.backends.gpu_record import Handover
from lab.backends.log_tail import last_lines
from lab.backends.names import CLASS
from lab.backends.options import Values
from lab.backends.recorded import (
    EnvironmentDir,
    Record,
    RecordedEnvironment,
    TaskRecord,
    record_text,
)
from lab.backends.state import state_errors
from lab.base.errors import InputError, LabError
from lab.base.formatting import about
from lab.base.image_digest import digest
from lab.base.log import LOG
from lab.base.variables import LAB_STATE
from lab.cluster.config import Cluster
from lab.cluster.placement.place import Placed
from lab.cluster.placement.plan import Plan
from lab.protocol.volume import control
from lab.protocol.volume.continuation import mark_lost, next_step
from lab.protocol.volume.status import read_statuses
from lab.teach.classroom.protocol import PATIENCE_S, Gone, Order, Queue, State, Status

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


class ClassEnvironment(RecordedEnvironment[EnvironmentRecord]):
    """An environment of the queue; its files are on the disk of the seat. See `Environment`.

    The queue blocks the host and verifies the GPUs at the boot, and a seat has no shell in the
    containers of the host: for these, the defaults of `Environment` are right.
    """

    backend = CLASS
    is_local = False
    state_dirs = StateDir

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
        self.queue = queue
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
        if self.queue is not None:
            with suppress(Gone):
                status = self.queue.request(Status, "GET", patience_s=patience_s)
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
        with self.run_volume.errors():
            mark_lost(self.run_volume.volume, "the queue ended the containers")

    def check_followed(self, run_id: str) -> None:
        """Check that it has not ended; see `Environment`.

        If the queue ends the turn, cancel the run, so that the programs save their state.
        """
        super().check_followed(run_id)
        status = self.status()
        if status is not None and status.state is State.ENDING:
            with self.run_volume.errors():
                request = control.find(self.run_volume.volume, run_id)
                statuses = read_statuses(self.run_volume.volume, request)
                if not all(task.state.ended for task in statuses.values()):
                    # A second cancellation changes nothing.
                    reason = f"{status.reason}; {next_step(request, statuses)}"
                    control.cancel(self.run_volume.volume, run_id, reason)

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
        if self.queue is not None:
            with suppress(Gone):
                self.queue.end({self.project: f"?id={self._record.id}"})
        self._status, self._asked_s = None, time.monotonic()


_POLL_S: Final = 1.0

_PATIENCE_S: Final = 3.0
"""Seconds for which a command waits for a queue that is down before it continues without it."""

_NO_SEAT: Final = "this is not a seat of a class with a queue; use `--backend local`"


class ClassBackend(RecordedBackend):
    """Environments of containers on the class's host, granted by the class's queue.

    Attributes:
        name: `class`.
    """

    name = CLASS

    def __init__(self, own: Values = MappingProxyType({})) -> None:
        """Look for the queue of this seat; see `Backend`."""
        super().__init__(own)
        self._here = Queue.here()

    def plan(
        self, cluster: Cluster, mode: str, *, runtime: str, file: Path | None = None
    ) -> Placed:
        """Place a config by numbers: the queue places it again on the GPUs that it grants."""
        return super().plan(
            cluster, mode if mode == "none" else "index", runtime=runtime, file=file
        )

    def task_path(self, path: Path, root: Path) -> str:
        """Return the same path: the containers have the home directory of this seat.

        Raises:
            InputError: It is not in the home directory.
        """
        del root
        _check_seen("--data_dir", path)
        return str(path)

    def unavailable_reason(self) -> str | None:
        """Why there is no queue, with a hint; None if it answers."""
        if self._here is None:
            return _NO_SEAT
        try:
            with suppress(Gone):
                self._here.request(Status, "GET", patience_s=_PATIENCE_S)
        except LabError as error:
            return str(error)
        return None

    def boot(self, plan: Plan, *, root: Path) -> ClassBoot:
        """Return the steps of a boot; see `Backend`.

        Raises:
            LabError: This is not a seat.
        """
        if self._here is None:
            raise LabError(_NO_SEAT)
        return ClassBoot(plan, root, self._here)

    def environments(self) -> type[ClassEnvironment]:
        """Return the class of its environments; see `RecordedBackend`."""
        return ClassEnvironment

    def find_any(self, project: str) -> Environment | None:
        """The environment of this name, as the queue knows it; see `RecordedBackend`."""
        environment = super().find_any(project)
        if isinstance(environment, ClassEnvironment):
            environment.queue = self._here
        return environment


class ClassBoot(Boot[ClassEnvironment]):
    """The steps that take a place in the queue. An interrupt gives the place back."""

    backend = CLASS

    def __init__(self, plan: Plan, root: Path, queue: Queue) -> None:
        super().__init__(plan, root)
        self._queue = queue
        self._state_dir = StateDir.of(plan.name)
        self._record = EnvironmentRecord(
            project=plan.name,
            id=secrets.token_hex(8),
            cluster_sha256=plan.cluster_sha256,
            root=str(root),
            tasks=tuple(TaskRecord(task.name, task.node) for task in plan.tasks),
            runtime=plan.runtime,
            sources_sha256=digest(),
        )
        self._environment = ClassEnvironment(self._state_dir, self._record, queue)

    def prepare(self) -> None:
        """Refuse an environment that the queue has, and directories that containers cannot see."""
        name, record = self.plan.name, self._state_dir.read()
        if record is not None:
            status = ClassEnvironment(self._state_dir, record, self._queue).refresh()
            if status is not None and status.state is not State.ENDED:
                raise LabError(
                    f"this seat already has the environment {name!r} in the queue ({status.state})",
                    f"use it, or remove it with `lab down {name}`",
                )
        _check_seen("the project", self.root)
        _check_seen(LAB_STATE, self._state_dir.directory)

    def start(self, lock: int | None, hold: Handover) -> ClassEnvironment:
        """Take a place, and wait for the turn and until every agent runs; see `Boot`."""
        del lock, hold
        plan, directory = self.plan, self._state_dir.directory
        with state_errors():
            self._state_dir.clear()
            (directory / "output").mkdir(exist_ok=True)
            self._state_dir.write(self._record)
        order = Order(
            id=self._record.id,
            config=plan.config,
            with_gpus=plan.mode != "none",
            folder=str(self.root),
            directory=str(directory),
            runtime=plan.runtime,
        )
        self._wait(self._queue.request(Status, "PUT", body=order))
        return self._environment

    def _wait(self, status: Status | None) -> None:
        """Wait until the environment is up; report its place in the queue, and its turn.

        Raises:
            LabError: The queue has ended it.
        """
        shown = ""
        while status is not None and status.state not in {State.ENDING, State.ENDED}:
            line = f"position {status.position} in the queue"
            if status.state is not State.WAITING:
                line = f"its turn begins; if others wait, it ends after {about(status.slice_s)}"
            if line != shown:
                LOG.info(line)
                shown = line
            if status.state is State.UP:
                return
            time.sleep(_POLL_S)
            status = self._environment.refresh()
        reason = (status and status.reason) or "the queue ended the environment"
        outputs = [self._state_dir.output(task.name) for task in self.plan.tasks]
        printed = next(filter(None, (last_lines(path, 3) for path in outputs)), "")
        tail = f"; its last lines: {printed}" if printed else ""
        raise LabError(f"{reason}{tail}", "try again")

    def undo(self) -> None:
        """Give the place of a failed boot back; an error here must not hide the boot's error."""
        try:
            self._environment.end(keep_volume=self._state_dir.kept.exists())
        except LabError as error:
            LOG.warning(f"{self.plan.name} is not removed: {error}; run `lab down`")


def _check_seen(label: str, path: Path) -> None:
    """Check that the containers of the queue see a path: they mount only the home directory.

    Raises:
        InputError: They do not.
    """
    if not path.is_relative_to(Path.home()):
        raise InputError(
            f"{label}: {path} is not in {Path.home()}, and the containers of the queue cannot see"
            " other directories of this seat",
            "use a directory there, or `--backend local`",
        )
