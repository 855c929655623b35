"""The containers of the seats' environments on this host.

The containers mount the whole volume of their seat and have the student's rights, but no more. A
student can write anything there. So this module reads no file of the volume and asks no program in
a container: it relies only on the containers and the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.backends.boot import boot
from lab.backends.compose.backend import ComposeBackend, ComposeBoot
from lab.backends.compose.cli import Compose, remove_compose_file
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.host_block import block_nodes
from lab.backends.compose.readiness import READY_S
from lab.backends.compose.render import DEFAULTS, Home, render
from lab.backends.engine.client import LOG_LIMIT, Engine
from lab.backends.engine.containers import ContainerInfo
from lab.backends.environment import no_check
from lab.backends.gpu_record import Handover
from lab.backends.options import Values
from lab.backends.state import lock_environment
from lab.classroom import names
from lab.classroom.planning import SeatPlan
from lab.classroom.queue.admission import plan_of
from lab.classroom.queue.ledger import Entry
from lab.errors import LabError
from lab.gpu import read_host
from lab.placement.plan import Plan
from lab.variables import LAB_OUTPUT, LAB_RUNS, LAB_SCRIPTS


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
        return boot(steps, no_check, share=True).provenance()

    def end(self, project: str) -> None:
        """Stop the containers of an environment, and remove them; there may be none."""
        remove(project)

    def runs(self, project: str) -> bool:
        """Return whether an environment has a container that runs."""
        return ComposeBackend().find(project) is not None


def remove(project: str) -> None:
    """Remove the containers of an environment; there may be none.

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
        super().__init__(plan, root, engine, options=options, ready_s=READY_S)
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
