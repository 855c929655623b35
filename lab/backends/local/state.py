"""What is known of an environment that was booted: `<state>/local/<project>/`.

It holds `environment.json`, the run volume `runs/`, what the agents said in `output/`, and the
supervisor's own `supervisor.log`.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from lab.backends.process import ProcessHandle
from lab.backends.state import state_directory
from lab.errors import LabError
from lab.placement.plan import Link
from lab.task.protocol.files import write_atomically
from lab.tf_versions import CURRENT

START = b"go\n"
"""What the supervisor waits for: it is on record now, and may start agents."""

_PROJECT = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


class Isolation(StrEnum):
    """How the pseudo-nodes are kept apart."""

    NAMESPACES = "namespaces"
    PROCESSES = "processes"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A pseudo-node: its name, its IPv4 address where it has one of its own, its link."""

    name: str
    ip: str | None
    link: Link | None


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task: what its agent is started with.

    Attributes:
        task: `worker-0`.
        node: Its node.
        address: `host:port` of its TensorFlow server.
        gpus: Device ids that it is pinned to.
        cpuset: CPUs that are its own (`4-7`), or None.
        environ: Environment variables beside the inherited ones.
    """

    task: str
    node: str
    address: str
    gpus: tuple[str, ...]
    cpuset: str | None
    environ: dict[str, str]


@dataclass(frozen=True, slots=True)
class EnvironmentRecord:
    """One environment, as `environment.json` holds it.

    Attributes:
        project: The project's name.
        cluster_sha256: Digest of the description.
        root: The project's directory.
        isolation: How the nodes are kept apart.
        process: The process whose death ends everything.
        interpreter: The Python that runs agents and programs.
        nodes: In the plan's order.
        tasks: In the plan's order.
        tensorflow: The version that this Python has, as the plan names it.
        sources_sha256: Digest of lab's own code that the agents were started with, or "" where a
            lab has booted it that knew none.
    """

    project: str
    cluster_sha256: str
    root: str
    isolation: Isolation
    process: ProcessHandle
    interpreter: str
    nodes: tuple[NodeRecord, ...]
    tasks: tuple[TaskRecord, ...]
    tensorflow: str = CURRENT.tensorflow
    sources_sha256: str = ""

    def cluster_spec(self) -> dict[str, list[str]]:
        """TensorFlow's cluster spec."""
        spec: dict[str, list[str]] = {}
        for task in self.tasks:
            spec.setdefault(task.task.rpartition("-")[0], []).append(task.address)
        return spec

    def to_json(self) -> str:
        """Readable JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> EnvironmentRecord:
        """Read it back.

        Raises:
            ValueError: The text is no such record.
        """
        # Imported here: not every command looks for local environments.
        import msgspec  # noqa: PLC0415

        try:
            return msgspec.json.decode(text, type=cls)  # keys of a later lab are passed over
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"not an environment: {error}") from error


class StateDir:
    """Where one environment lies on this machine.

    Attributes:
        directory: All of it.
        record: The file that describes it.
        runs: The run volume.
        kept: The file that marks a run volume which stays for files that are not collected.
        log: The supervisor's output.
        hosts: The nodes' /etc/hosts.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.record = directory / "environment.json"
        self.runs = directory / "runs"
        self.kept = directory / "kept"
        self.log = directory / "supervisor.log"
        self.hosts = directory / "hosts"

    def output(self, task: str) -> Path:
        """What a task's agent says."""
        return self.directory / "output" / f"{task}.log"

    def ended(self, task: str) -> Path:
        """How a task's agent has ended, if it has."""
        return self.directory / "output" / f"{task}.ended"

    def read(self) -> EnvironmentRecord | None:
        """The environment; None where none was booted.

        Raises:
            LabError: There is a record, and it cannot be read.
        """
        try:
            return EnvironmentRecord.from_json(self.record.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise LabError(
                f"{self.record} cannot be read: {error}",
                f"end what still runs of it, then remove {self.directory}",
            ) from error

    def write(self, record: EnvironmentRecord) -> None:
        """Describe it, atomically."""
        write_atomically(self.record, record.to_json())


def base() -> Path:
    """Where all local environments of this user lie."""
    return state_directory() / "local"


def state_dir(project: str) -> StateDir:
    """Where the environment of this name lies, or would.

    Raises:
        LabError: It is no name.
    """
    if not _PROJECT.fullmatch(project):
        raise LabError(f"{project!r} is no project's name", "use a-z, 0-9 and hyphens")
    return StateDir(base() / project)


def state_dirs() -> list[StateDir]:
    """All of them, by name."""
    return [StateDir(path.parent) for path in sorted(base().glob("*/environment.json"))]


def namespaces_cache() -> Path:
    """Where it is remembered that nodes can have namespaces of their own."""
    return base() / "namespaces.known"  # no project has a name with a dot


def remove_tree(path: Path) -> None:
    """Remove a file, or a directory with all that is below it.

    `rm` does it: Python's own functions fail at a depth of some hundred directories.

    Raises:
        LabError: Something is left.
    """
    done = subprocess.run(
        ["rm", "-rf", "--", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = " ".join(done.stderr.strip().splitlines()[-1:])
        raise LabError(f"{path} cannot be removed: {last}", "remove it by hand")
