"""Where a plan comes to life: one protocol, two backends.

A backend boots an *environment*: for every task of the plan an agent that waits for requests. All
that happens in an environment after that goes through its run volume, by the same files on every
backend (`lab.task.protocol`).

A further backend is two classes, derived from `Backend` and `Environment`. They define the methods
that have no body here, and `lab.backends.selection.backends` lists the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Protocol

from lab.task.protocol import Chunk, Request

if TYPE_CHECKING:
    # `lab render` and its kin need the backends' names alone.
    from lab.gpu.verification import GpuView
    from lab.placement.plan import Plan

__all__ = [
    "NO_PARTS",
    "Backend",
    "Check",
    "Chunk",
    "Command",
    "Environment",
    "KeepVolume",
    "Notify",
    "Precondition",
    "TaskInfo",
    "no_check",
    "no_precondition",
    "remove_volume",
]

NO_PARTS: Final[Mapping[str, Path]] = MappingProxyType({})

Notify = Callable[[str], None]
"""Shows one line of progress to the user."""


Precondition = Callable[[], None]
"""Raises where an environment must not be taken down."""


def no_precondition() -> None:
    """Nothing speaks against it."""


KeepVolume = Callable[[], bool]
"""Whether the run volume of an environment stays when the rest of it is removed."""


def remove_volume() -> bool:
    """The volume is removed, too."""
    return False


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task of an environment that is up, as `lab ps` shows it.

    Attributes:
        task: `worker-0`.
        node: The node that it runs on.
        address: `host:port` of its TensorFlow server.
        gpus: Device ids that it was planned to have; what it has is a question for `look`.
        alive: Whether its agent is there.
        detail: The engine's or the kernel's word on it: `running (healthy)`, `pid 4711`.
    """

    task: str
    node: str
    address: str
    gpus: tuple[str, ...]
    alive: bool
    detail: str


Command = Literal["cancel", "kill", "fault", "collected"]
"""A message for a run, as `lab.task.probes.volume` knows it."""


class Environment(Protocol):
    """A plan that is up, or that has left a volume behind.

    Each backend's class derives from this one. The methods with a body are the same on all.
    """

    backend: str  # "local" or "compose"
    project: str
    folder: str  # the project's directory, or "" where it is not known any more
    cluster_sha256: str
    tensorflow: str  # the version that its tasks have, as the plan names it

    @property
    def is_up(self) -> bool:
        """Whether any of it runs; otherwise stopped containers or only its volume are left."""

    @property
    def sources_sha256(self) -> str:
        """Digest of lab's own code that its agents run (`probes.version`); "" if it is unknown.

        Raises:
            LabError: The backend does not answer.
        """

    @property
    def is_local(self) -> bool:
        """Whether its tasks run on this machine, so that this machine's cards are theirs."""

    def cluster_spec(self) -> dict[str, list[str]]:
        """TensorFlow's cluster spec, with addresses that are valid in this environment."""

    def tasks(self) -> list[TaskInfo]:
        """Every task, in the plan's order."""

    def submit(self, request: Request, parts: Mapping[str, Path] = NO_PARTS) -> None:
        """Hand a request to the agents.

        Args:
            request: What they are to start.
            parts: Directories that the run is to have from its beginning, by their names in it:
                `program` with the user's own program and its modules, if it is `own`;
                `checkpoints` to go on from.

        Raises:
            Busy: Another run is under way in this environment.
            LabError: An agent of it is not there.
        """

    def post(self, command: Command, run_id: str, text: str) -> None:
        """Write one message for a run onto the volume.

        Args:
            command: What it is; a command of `lab.task.probes.volume`.
            run_id: The run.
            text: The message.

        Raises:
            LabError: There is no such run, or its volume cannot be written.
        """

    def cancel(self, run_id: str, reason: str) -> None:
        """Ask the agents to end a run: the programs save what they have, and leave."""
        self.post("cancel", run_id, reason)

    def kill(self, run_id: str, reason: str) -> None:
        """Ask the agents to end a run at once, whatever its programs are at."""
        self.post("kill", run_id, reason)

    def inject_network_fault(self, node: str, arguments: Sequence[str]) -> None:
        """Do a fault to a node's network; it holds for its time, whatever becomes of the caller.

        Args:
            node: The node.
            arguments: What `lab.task.probes.netfault` is to do.

        Raises:
            LabError: It could not be done; the kernel's word on it.
        """

    def inject_fault(self, run_id: str, fault: str) -> None:
        """Put a fault with nothing random on the volume, for the agents of a run."""
        self.post("fault", run_id, fault)

    def mark_collected(self, run_id: str, directory: str) -> None:
        """Note on the volume into which directory of runs all of a run was collected."""
        self.post("collected", run_id, directory)

    def runs(self) -> list[Request]:
        """All requests on the volume, oldest first."""

    def collected(self) -> Mapping[str, str]:
        """Run to the directory that is noted so; a program can have forged it.

        Raises:
            LabError: The volume cannot be read, or its agents know no such notes.
        """

    def stream(
        self,
        run_id: str,
        offsets: Mapping[str, int],
        *,
        follow: bool,
        all_sizes: bool = False,
        rest: bool = False,
    ) -> Iterator[Chunk | None]:
        """Bring a run home, from the given byte offsets on.

        Args:
            run_id: The run.
            offsets: Path relative to the run's directory → bytes that are at home already.
            follow: Go on until every task has ended, otherwise stop at what is there now.
            all_sizes: Bring files of any size.
            rest: Bring all files although a task has not written its end: its agent has died.

        Yields:
            Pieces as they appear; None at least once a second, so that a view can be refreshed.

        Raises:
            LabError: The environment has gone.
        """

    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        """Lines that the agents copied to their standard output, `worker-0  | …`.

        Args:
            tasks: Whose.
            follow: Go on with those that come.
            tail: Begin with this many lines of each; None: with all.
            since: Only those written since this time, in seconds since the epoch.
        """

    def shell(self, task: str) -> list[str]:
        """The command line that opens a shell in the task's place."""

    def probe_gpus(self, *, tensorflow: bool) -> dict[str, GpuView]:
        """What every task sees of the box's GPUs now, by the task's name.

        Where nodes are containers too, each stands here by its own name: it is to see none. One
        that cannot be asked has a sight that says why.

        Args:
            tensorflow: Whether TensorFlow is asked too, which takes seconds.
        """

    def provenance(self) -> dict[str, str]:
        """What really ran: image digest or interpreter, versions of engine or kernel."""

    def description(self) -> tuple[str, str]:
        """File name and text of what really ran: the compose file, or the processes as JSON."""

    def down(
        self,
        notify: Notify,
        *,
        unless: Precondition = no_precondition,
        keeps: KeepVolume = remove_volume,
    ) -> None:
        """Remove everything that carries this environment's labels; nothing else.

        Args:
            notify: Receives progress.
            unless: Asked first, when no run can be submitted any more; what it raises leaves all
                as it is.
            keeps: Asked next: whether the run volume stays.

        Raises:
            Busy: Another command boots it, submits a run or takes it down now.
            LabError: Something of it is left.
        """


Check = Callable[[Environment], None]
"""Looks at an environment that has just come up; raises LabError where it must not stay."""


def no_check(environment: Environment) -> None:
    """It may stay as it is."""


class Backend(Protocol):
    """Boots and finds environments; each backend's class derives from this one."""

    @property
    def name(self) -> str:
        """`local` or `compose`."""

    def unavailable_reason(self) -> str | None:
        """Why this backend cannot be used here, with the mend; None when it can."""

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """Why this plan cannot be booted here (it has no image), with the mend; None: it can."""

    def up(
        self,
        plan: Plan,
        *,
        root: Path,
        notify: Notify,
        check: Check = no_check,
        share: bool = False,
    ) -> Environment:
        """Boot an environment and wait until every agent is there.

        If it fails half-way, what it started is taken down before the error is raised.

        Args:
            plan: What to boot.
            root: The project's directory, with `scripts/`, `data/` and `Dockerfile.gpu`.
            notify: Receives progress.
            check: Called once every agent is there; what it raises fails the boot.
            share: Whether another environment may hold the same GPUs.

        Raises:
            LabError: It did not come up, or another environment holds one of its GPUs; nothing is
                left behind.
        """

    def projects(self) -> Collection[str]:
        """Names of all environments of which anything is left on this backend."""

    def find_any(self, project: str) -> Environment | None:
        """What is left of an environment: up, stopped, or only its run volume."""

    def find(self, project: str) -> Environment | None:
        """The environment of this name that is up, whatever directory one stands in."""
        found = self.find_any(project)
        return found if found is not None and found.is_up else None

    def all(self) -> Sequence[Environment]:
        """Every environment of this backend that is up."""
        return [each for each in self._environments() if each.is_up]

    def find_orphans(self) -> Sequence[Environment]:
        """What is left of every other: half booted, stopped, or only its run volume."""
        return [each for each in self._environments() if not each.is_up]

    def _environments(self) -> Iterator[Environment]:
        for project in sorted(self.projects()):
            if (found := self.find_any(project)) is not None:
                yield found
