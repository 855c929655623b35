"""The containers of the seats' environments on this host.

The containers mount the whole volume of their seat: they have its person's rights, and no more. A
seat can write there what it likes. So nothing here reads a file of the volume, or asks a program in
a container: containers, their processes and the clock are all that counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lab.backends.compose.backend import ComposeBackend, ComposeBoot
from lab.backends.compose.cli import Compose
from lab.backends.compose.host_block import block_nodes
from lab.backends.compose.render import Home, render
from lab.backends.engine.client import Engine, engine_errors
from lab.backends.engine.containers import PROJECT, TASK
from lab.backends.gpu_verification import boot
from lab.classroom import names
from lab.classroom.planning import SeatPlan
from lab.classroom.queue.admission import cluster_of, plan_of
from lab.classroom.queue.ledger import Entry
from lab.errors import LabError
from lab.gpu import read_host
from lab.placement.plan import Plan
from lab.variables import LAB_OUTPUT, LAB_RUNS, LAB_SCRIPTS, LAB_STAMPS


class Host(Protocol):
    """Boots, ends and looks at the containers of entries. Each method raises a `LabError`."""

    def boot(self, entry: Entry, config: str) -> dict[str, str]:
        """Boot the containers of an entry; return what really runs."""

    def end(self, project: str) -> None:
        """Stop the containers of an environment, and remove them; there may be none."""

    def runs(self, project: str) -> bool:
        """Return whether an environment has a container that runs."""

    def is_used(self, project: str) -> bool:
        """Return whether a program runs in a container of an environment."""

    def inject_fault(self, project: str, node: str, arguments: tuple[str, ...]) -> None:
        """Inject a fault into the network of a node."""


@dataclass(frozen=True, slots=True)
class EngineHost:
    """A `Host`: the engine of this host.

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

    def boot(self, entry: Entry, config: str) -> dict[str, str]:
        """Boot the containers of an entry; return what really runs."""
        plan = plan_of(entry, cluster_of(config), read_host(), self.seats[entry.seat])
        backend = SeatCompose(home_of(self.class_name, entry)).with_options(
            {"network": "isolated", "subnet": entry.network}
        )
        # The class holds the GPUs in the host's record. Within the class, the ledger decides.
        return boot(backend, plan, root=self.root, share=True).provenance()

    def end(self, project: str) -> None:
        """Stop the containers of an environment, and remove them; there may be none."""
        if (found := ComposeBackend().find_any(project)) is not None:
            found.down()

    def runs(self, project: str) -> bool:
        """Return whether an environment has a container that runs."""
        return ComposeBackend().find(project) is not None

    def is_used(self, project: str) -> bool:
        """Return whether a program runs in a container of an environment."""
        for container in self.engine.containers(f"{PROJECT}={project}", TASK):
            with engine_errors(f"listing the processes of {container.name}"):
                found = container.top()
            if has_program(found["Titles"], found["Processes"]):
                return True
        return False

    def inject_fault(self, project: str, node: str, arguments: tuple[str, ...]) -> None:
        """Inject a fault into the network of a node."""
        found = ComposeBackend().find(project)
        if found is None:
            raise LabError(f"{project} has no containers", "see `lab ls`")
        found.inject_network_fault(node, arguments)


def has_program(titles: list[str], processes: list[list[str]]) -> bool:
    """Return whether a container has a process below its agent.

    Args:
        titles: The names of the columns of `docker top`.
        processes: Its rows. The agent is a child of the container's first process. A health check
            is none: its parent is outside.
    """
    pid, ppid = titles.index("PID"), titles.index("PPID")
    parents = {each[pid]: each[ppid] for each in processes}
    return any(parents.get(parent) in parents for parent in parents.values())


def home_of(class_name: str, entry: Entry) -> Home:
    """Return the volume of an entry's seat, with the directories in it."""
    return Home(
        volume=names.seat_object(class_name, entry.seat),
        target=names.MOUNT,
        variables={
            LAB_RUNS: f"{entry.directory}/runs",
            LAB_OUTPUT: f"{entry.directory}/output",
            LAB_SCRIPTS: f"{entry.folder}/scripts",
            LAB_STAMPS: "1",
        },
        logging={"driver": names.LOG["type"], "options": names.LOG["config"]},
    )


class SeatCompose(ComposeBackend):
    """Boots the environment of a seat on the seat's volume."""

    def __init__(self, home: Home) -> None:
        super().__init__()
        self._home = home

    def boot(self, plan: Plan, *, root: Path) -> SeatBoot:
        """Return the steps of a boot; see `Backend`."""
        steps = SeatBoot(plan, root, self._engine, options=self.options, ready_s=self._ready_s)
        steps.home = self._home
        return steps


class SeatBoot(ComposeBoot):
    """The steps of such a boot.

    Attributes:
        home: The volume of the seat.
    """

    home: Home

    def text(self) -> str:
        """Return the compose file."""
        return render(self.plan, self.options(), home=self.home)

    def start_containers(self, compose: Compose) -> None:
        """Start the nodes, block this host from them, and only then start the tasks.

        The seat may have written a request already: a program may begin at once.

        Raises:
            LabError: The engine, compose or the kernel refuses.
        """
        compose.up(*(node.name for node in self.plan.nodes))
        block_nodes(self.engine, self.plan.name)
        super().start_containers(compose)
