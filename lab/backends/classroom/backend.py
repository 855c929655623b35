"""The backend of a seat: asks the queue for an environment, and waits for its turn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from lab.backends.base import Backend
from lab.backends.boot import Boot
from lab.backends.classroom.client import Queue
from lab.backends.classroom.environment import ClassEnvironment, converted
from lab.backends.classroom.protocol import Order, State, Status
from lab.backends.gpu_record import Handover
from lab.backends.names import CLASS
from lab.config import Cluster
from lab.errors import InputError, LabError
from lab.formatting import about
from lab.log import LOG
from lab.placement.place import Placed
from lab.placement.plan import Plan

_UPDATE_S: Final = 30.0
"""Seconds after which the estimate is reported again although the position is the same."""

_PATIENCE_S: Final = 3.0
"""Seconds for which a command waits for a queue that is down before it does without."""

_NO_SEAT: Final = "this is no seat of a class with a queue; use `--backend local`"


class ClassBackend(Backend):
    """Environments of containers on the class's host, by the class's queue.

    Attributes:
        name: `class`.
    """

    name: Final = CLASS

    def __init__(self) -> None:
        super().__init__()
        self._here = Queue.here()

    @property
    def _queue(self) -> Queue:
        if self._here is None:
            raise LabError(_NO_SEAT)
        return self._here

    def plan(
        self, cluster: Cluster, mode: str, *, tensorflow: str, file: Path | None = None
    ) -> Placed:
        """Place a config by numbers: the queue places it again on the GPUs that it grants."""
        return super().plan(
            cluster, mode if mode == "none" else "index", tensorflow=tensorflow, file=file
        )

    def task_path(self, path: Path, root: Path) -> str:
        """Refuse: the host has no file of a seat."""
        del root
        raise InputError(
            f"--data_dir: {path} is in this seat, and the host has only the shipped data",
            "leave it out, or use --backend local",
        )

    def unavailable_reason(self) -> str | None:
        """Why there is no queue, with a hint; None if it answers."""
        try:
            replace(self._queue, patience_s=_PATIENCE_S).request("GET", "")
        except LabError as error:
            return str(error)
        return None

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """None: the host has the images of its class."""

    def notices(self, plan: Plan) -> Sequence[str]:
        """One line for each feature of the plan that works in another way in the queue."""
        return ()

    def boot(self, plan: Plan, *, root: Path) -> ClassBoot:
        """Return the steps of a boot; see `Backend`."""
        return ClassBoot(plan, root, self._queue)

    def projects(self) -> list[str]:
        """Names of all environments of this seat in the queue."""
        return sorted({each.name for each in self._statuses()})

    def find_any(self, project: str) -> ClassEnvironment | None:
        """The newest environment of this name: waiting, up, or only its run volume."""
        found = [each for each in self._statuses() if each.name == project]
        return ClassEnvironment(self._queue, found[-1]) if found else None

    def _statuses(self) -> list[Status]:
        return converted(self._queue.request("GET", ""), list[Status])


class ClassBoot(Boot[ClassEnvironment]):
    """The steps that take a place in the queue. An interrupt gives the place back."""

    backend = CLASS

    def __init__(self, plan: Plan, root: Path, queue: Queue) -> None:
        super().__init__(plan, root)
        self._queue = queue
        self._environment: ClassEnvironment | None = None

    def lock(self) -> AbstractContextManager[None]:
        """Return no lock: the queue has the environments."""
        return nullcontext()

    def prepare(self) -> None:
        """Check nothing: the queue checks the order."""

    def start(self, lock: int | None, hold: Handover) -> ClassEnvironment:
        """Take a place, and wait for the turn and until every agent runs; see `Boot`."""
        del lock, hold
        plan = self.plan
        order = Order(
            config=plan.config,
            with_gpus=plan.mode != "none",
            cluster_sha256=plan.cluster_sha256,
            folder=str(self.root),
            tensorflow=plan.tensorflow,
        )
        status = converted(self._queue.request("POST", "", asdict(order)), Status)
        self._environment = ClassEnvironment(self._queue, status)
        return _wait(self._environment)

    def undo(self) -> None:
        """Give the place of a failed boot back; an error here must not hide the boot's error."""
        if self._environment is None:
            return
        try:
            self._environment.give_back(keep=False)
        except LabError as error:
            LOG.warning(f"{self.plan.name} is not removed: {error}; run `lab down`")


def _wait(environment: ClassEnvironment) -> ClassEnvironment:
    """Wait until an environment is up; report its place in the queue and its boot."""
    shown, shown_s, lines = 0, 0.0, 0
    while True:
        status = environment.status
        moved = status.position != shown or time.monotonic() - shown_s > _UPDATE_S
        if status.position and moved:
            LOG.info(_place(status))
            shown, shown_s = status.position, time.monotonic()
        for line in status.lines[lines:]:
            LOG.info(line)
        lines = max(lines, len(status.lines))
        if status.state is State.UP:
            return environment
        if status.state in {State.ENDING, State.ENDED}:
            raise LabError(status.reason or "the queue ended the environment", "try again")
        environment = environment.refreshed(status.revision)


def _place(status: Status) -> str:
    when = f", about {about(status.wait_s)}" if status.wait_s else ""
    return f"position {status.position} in the queue{when}"
