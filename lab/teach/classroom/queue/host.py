"""The seats' containers on this host, and the queue for the teacher's commands.

The containers mount the whole volume of their seat and have the student's rights, but no more. A
student can write anything there. So this module reads no file of the volume and asks no program in
a container: it relies only on the containers and the clock.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from lab.backends.boot import boot
from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.boot import ComposeBoot
from lab.backends.compose.cli import Compose, remove_compose_file
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.host_block import block_nodes
from lab.backends.compose.render import DEFAULTS, Home, render
from lab.backends.engine.client import LOG_LIMIT, Engine
from lab.backends.engine.containers import ContainerInfo
from lab.backends.gpu_record import Handover
from lab.backends.options import Values
from lab.backends.state import lock_environment, lock_path, with_lock_retry
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.base.variables import LAB_OUTPUT, LAB_QUEUE, LAB_RUNS, LAB_SCRIPTS
from lab.cluster.gpu import read_host
from lab.cluster.placement.plan import Plan
from lab.teach.classroom import names
from lab.teach.classroom.class_dir import ClassDir
from lab.teach.classroom.planning import SeatPlan
from lab.teach.classroom.protocol import Queue, State
from lab.teach.classroom.queue.ledger import Entry, Ledger, plan_of, project_name


@dataclass(frozen=True)
class Host:
    """Boots, ends and inspects the containers of entries. Each method may raise a `LabError`.

    Attributes:
        class_name: The class.
        seats: The limits of each seat.
        root: The project's directory on this host.
        engine: The engine.
    """

    class_name: str
    seats: Mapping[str, SeatPlan]
    root: Path
    engine: Engine

    def boot(self, entry: Entry) -> dict[str, str]:
        """Boot the containers of an entry; return what really runs."""
        plan = plan_of(entry, read_host(), self.seats[entry.seat])
        options = {**DEFAULTS, "network": "isolated", "subnet": entry.network}
        steps = SeatBoot(plan, self.root, self.engine, options, home_of(self.class_name, entry))
        # The class holds the GPUs in the host's record. Within the class, the ledger decides.
        return boot(steps, share=True).provenance()

    def end(self, project: str) -> None:
        """Stop the containers of an environment, and remove them; there may be none."""
        remove(project)

    def runs(self, project: str) -> bool:
        """Return whether an environment has a container that runs."""
        return ComposeBackend().find(project) is not None


def remove(project: str) -> None:
    """Stop the containers of an environment, and remove them; there may be none.

    Raises:
        Busy: A boot of it is still under way, perhaps that of a service that was killed.
        LabError: The engine refuses.
    """
    backend = ComposeBackend()
    with lock_environment(backend.name, project):
        environment = backend.find_any(project)
    if environment is not None:
        environment.down()
    remove_compose_file(project)  # of a boot that was killed before its first container


def check_gpus(containers: Iterable[ContainerInfo]) -> None:
    """Check that the engine gave each container its planned GPUs.

    It asks no program in a container: a program of the student may run there and answer.

    Raises:
        LabError: A container has other GPUs.
    """
    for container in containers:
        gpus = container.gpus
        if gpus is not None and sorted(gpus) != sorted(container.planned):
            has = f"the engine gave {container.service} the GPUs {gpus}"
            raise LabError(f"{has}, not {container.planned}", "ask your teacher")


def home_of(class_name: str, entry: Entry) -> Home:
    """Return the volume of an entry's seat, with the directories in it."""
    return Home(
        volume=names.seat_object(class_name, entry.seat),
        target=names.MOUNT,
        variables={
            LAB_RUNS: f"{entry.order.directory}/runs",
            LAB_OUTPUT: f"{entry.order.directory}/output",
            LAB_SCRIPTS: f"{entry.order.folder}/scripts",
        },
        logging={"driver": LOG_LIMIT["type"], "options": LOG_LIMIT["config"]},
    )


class SeatBoot(ComposeBoot):
    """The steps that boot the environment of a seat on the seat's volume."""

    def __init__(self, plan: Plan, root: Path, engine: Engine, options: Values, home: Home) -> None:
        super().__init__(plan, root, engine, options)
        self._home = home

    def text(self) -> str:
        """Return the compose file."""
        return render(self.plan, self.options(), home=self._home)

    def start(self, lock: int | None, hold: Handover) -> ComposeEnvironment:
        """Start the containers; see `Boot`."""
        environment = super().start(lock, hold)
        check_gpus(environment.containers)
        return environment

    def start_containers(self, compose: Compose) -> None:
        """Start the nodes, block this host from them, and only then start the tasks.

        The seat may have written a request already: a program may begin at once.

        Raises:
            LabError: The engine, compose or the kernel refuses.
        """
        compose.up(*(node.name for node in self.plan.nodes))
        block_nodes(self.engine, self.plan.name)
        super().start_containers(compose)


TEACHER: Final = "*"
"""The teacher in place of a seat. No seat has this name."""


class Queued(msgspec.Struct, frozen=True):
    """An environment that waits or has containers.

    Attributes:
        seat: Its seat.
        state: `waiting`, `granted`, `up` or `ending`.
        position: The place in its line, with or without GPUs, from 1; None if it does not wait.
        needs: The number of GPUs that it needs.
        gpus: The UUIDs of its GPUs.
        since_s: Seconds since its state began.
    """

    seat: str
    state: str
    position: int | None
    needs: int
    gpus: tuple[str, ...]
    since_s: float


def ledger_file(folder: ClassDir) -> Path:
    """Return the file of the ledger in the directory of a class."""
    return folder.path / "queue" / "ledger.json"


def read_ledger(folder: ClassDir) -> Ledger:
    """Read the ledger of a class; without a file, it is empty.

    Raises:
        LabError: The class or the ledger cannot be read.
    """
    return Ledger(ledger_file(folder), folder.stored().plan)


def queued(folder: ClassDir) -> list[Queued] | None:
    """Return the environments in the queue of a class, those that wait last.

    Returns:
        The environments; None if the class has no queue, or if a warning says that its ledger
        cannot be read.

    Raises:
        LabError: The class cannot be read.
    """
    if not folder.stored().plan.run_networks:
        return None
    try:
        ledger, now = read_ledger(folder), time.time()
    except LabError as error:
        LOG.warning(f"warning: {error}")
        return None
    positions = ledger.positions()
    environments = [
        Queued(
            seat=entry.seat,
            state=str(entry.state),
            position=positions.get(entry.seat),
            needs=entry.needs,
            gpus=entry.gpus,
            since_s=max(0.0, now - entry.since_unix),
        )
        for entry in ledger.entries.values()
        if entry.is_live
    ]
    return sorted(environments, key=lambda entry: entry.state == State.WAITING)


def queue_token(folder: ClassDir, name: str) -> str:
    """Return the token of a seat, or of `TEACHER`, for the queue; it reveals no other token.

    Raises:
        LabError: The tokens of the class cannot be read.
    """
    return hmac.digest(folder.tokens().service.encode(), name.encode(), "sha256").hex()


def queue_variables(folder: ClassDir, seat: str) -> dict[str, str]:
    """Return the variable by which a seat finds the queue; {} if the class has no queue.

    Raises:
        LabError: The class cannot be read.
    """
    if not folder.stored().plan.run_networks:
        return {}
    url = f"http://proxy:{names.QUEUE_RELAY_PORT}"
    return {LAB_QUEUE: f"{url} {queue_token(folder, seat)}"}


def end_environments(folder: ClassDir, seats: Collection[str]) -> None:
    """End the environments of some seats, for the teacher; do nothing without a queue.

    The seats have time to collect what they follow. All files stay on the seats' disks.

    Raises:
        LabError: The service does not answer, or does not end them in time.
    """
    plan = folder.stored().plan
    if plan.run_networks:
        url = f"http://{names.gateway(plan.proxy_network)}:{names.QUEUE_PORT}"
        queue = Queue(url, queue_token(folder, TEACHER))
        queue.end({seat: f"?seat={seat}" for seat in seats})


def remove_environments(folder: ClassDir, seats: Collection[str]) -> None:
    """Remove the containers of the environments of some seats, without the service and its ledger.

    Raises:
        LabError: The engine refuses.
    """
    if not ledger_file(folder).parent.exists():
        return  # its service never started
    backend = ComposeBackend()
    known = backend.projects()
    for project in [project_name(folder.name, seat) for seat in seats]:
        lock = lock_path(backend.name, project)
        if project in known or lock.exists():
            with_lock_retry(partial(remove, project))
            lock.unlink(missing_ok=True)
