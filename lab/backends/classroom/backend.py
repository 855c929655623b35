"""The backend of a seat: asks the queue for an environment, and waits for its turn."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any, Final

from lab.backends.boot import Boot
from lab.backends.classroom.environment import ClassEnvironment, EnvironmentRecord, StateDir
from lab.backends.classroom.protocol import Gone, Order, Queue, State, Status
from lab.backends.directory import RecordedBackend
from lab.backends.environment_dir import EnvironmentDir, TaskRecord
from lab.backends.gpu_record import Handover
from lab.backends.log_tail import last_lines
from lab.backends.names import CLASS
from lab.backends.state import state_errors
from lab.config import Cluster
from lab.errors import InputError, LabError
from lab.formatting import about
from lab.image_digest import digest
from lab.log import LOG
from lab.placement.place import Placed
from lab.placement.plan import Plan
from lab.text import short
from lab.variables import LAB_STATE

_POLL_S: Final = 1.0

_PATIENCE_S: Final = 3.0
"""Seconds for which a command waits for a queue that is down before it continues without it."""

_NO_SEAT: Final = "this is not a seat of a class with a queue; use `--backend local`"


class ClassBackend(RecordedBackend):
    """Environments of containers on the class's host, granted by the class's queue.

    Attributes:
        name: `class`.
    """

    name: Final = CLASS
    state_dirs = StateDir

    def __init__(self) -> None:
        super().__init__()
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
            self._here.request(Status, "GET", patience_s=_PATIENCE_S)
        except Gone:
            return None
        except LabError as error:
            return str(error)
        return None

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """Return None: the host has the images of its class."""

    def boot(self, plan: Plan, *, root: Path) -> ClassBoot:
        """Return the steps of a boot; see `Backend`.

        Raises:
            LabError: This is not a seat.
        """
        if self._here is None:
            raise LabError(_NO_SEAT)
        return ClassBoot(plan, root, self._here)

    def environment_of(self, state_dir: EnvironmentDir[Any], record: Any) -> ClassEnvironment:  # noqa: ANN401
        """Return the environment of a directory and its record."""
        return ClassEnvironment(StateDir(state_dir.directory), record, self._here)


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
        self._kept = False

    def prepare(self) -> None:
        """Refuse an environment that the queue has, and directories that containers cannot see."""
        name, record = self.plan.name, self._state_dir.read()
        if record is not None:
            status = ClassEnvironment(self._state_dir, record, self._queue).refresh()
            if status is not None and status.state is not State.ENDED:
                raise LabError(
                    f"this seat has the environment {name!r} in the queue already ({status.state})",
                    f"use it, or remove it with `lab down {name}`",
                )
        _check_seen("the project", self.root)
        _check_seen(LAB_STATE, self._state_dir.directory)
        self._kept = self._state_dir.kept.exists()

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
            self._environment.end(keep_volume=self._kept)
        except LabError as error:
            LOG.warning(f"{self.plan.name} is not removed: {error}; run `lab down`")


def _check_seen(label: str, path: Path) -> None:
    """Check that the containers of the queue see a path: they mount only the home directory.

    Raises:
        InputError: They do not.
    """
    if not path.is_relative_to(Path.home()):
        raise InputError(
            f"{label}: {short(str(path))} is not in {Path.home()}, and the containers of the queue"
            " see no other directory of this seat",
            "use a directory there, or `--backend local`",
        )
