"""The state of a booted local environment: the directory `<state>/local/<project>/`.

It holds `environment.json`, the run volume `runs/`, the agents' output in `output/`, and the
supervisor's `supervisor.log`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from lab.backends import environment_dir
from lab.backends.environment_dir import EnvironmentDir, Record
from lab.backends.names import LOCAL
from lab.backends.process import ProcessHandle
from lab.backends.state import state_errors
from lab.placement.plan import Link
from lab.volume.files import read_regular, write_atomically

START = b"go\n"
"""The supervisor's first line of input: the record is written, and it may start agents."""


class Isolation(StrEnum):
    """How the pseudo-nodes are isolated from each other."""

    NAMESPACES = "namespaces"
    PROCESSES = "processes"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A pseudo-node: its name, its IPv4 address if it has its own, and its link."""

    name: str
    ip: str | None
    link: Link | None


@dataclass(frozen=True, slots=True)
class TaskRecord(environment_dir.TaskRecord):
    """A task, and the settings of its agent.

    Attributes:
        address: `host:port` of its TensorFlow server.
        gpus: Device ids that it is pinned to.
        cpuset: CPUs that it is pinned to (`4-7`), or None.
        environ: Environment variables in addition to the inherited ones.
    """

    address: str
    gpus: tuple[str, ...]
    cpuset: str | None
    environ: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRecord(Record):
    """One environment, as stored in `environment.json`.

    Attributes:
        isolation: How the nodes are isolated.
        process: The supervisor, or its `unshare`. If it dies, all processes end.
        interpreter: The Python that runs agents and programs.
        nodes: The nodes, in the plan's order.
    """

    isolation: Isolation
    process: ProcessHandle
    interpreter: str
    nodes: tuple[NodeRecord, ...]
    tasks: tuple[TaskRecord, ...]


class StateDir(EnvironmentDir[EnvironmentRecord]):
    """The state directory of one environment.

    Attributes:
        log: The supervisor's output.
        hosts: The nodes' /etc/hosts.
    """

    backend = LOCAL
    record_type = EnvironmentRecord
    hint = "stop its processes"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.log = directory / "supervisor.log"
        self.hosts = directory / "hosts"

    def ended(self, task: str) -> Path:
        """The file that says how a task's agent ended; it exists only after the end."""
        return self.directory / "output" / f"{task}.ended"

    def read_agent(self, task: str) -> ProcessHandle | None:
        """Read the process of a task's agent; None if there is none.

        Raises:
            LabError: The file cannot be read.
        """
        # Imported here: few commands look for local environments.
        import msgspec  # noqa: PLC0415

        with state_errors():
            try:
                return msgspec.json.decode(read_regular(self._agent(task)), type=ProcessHandle)
            except (FileNotFoundError, PermissionError, ValueError):
                return None

    def write_agent(self, task: str, process: ProcessHandle) -> None:
        """Write the process of a task's agent, as the supervisor sees it."""
        write_atomically(self._agent(task), json.dumps(asdict(process)))

    def _agent(self, task: str) -> Path:
        return self.directory / "output" / f"{task}.agent"


def namespaces_cache() -> Path:
    """Return the file that caches a successful probe for namespaces."""
    return StateDir.base() / "namespaces.known"  # no project has a name with a dot
