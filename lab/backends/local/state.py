"""The state of a local environment, and its parts by a plan: nodes, addresses, ports, tasks.

The directory is `<state>/local/<project>/`.

It holds `environment.json`, the run volume `runs/`, the agents' output in `output/`, and the
supervisor's `supervisor.log`.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from lab.backends import recorded
from lab.backends.names import LOCAL
from lab.backends.process import ProcessHandle
from lab.backends.python import agent_environ
from lab.backends.recorded import EnvironmentDir, Record
from lab.backends.state import state_errors
from lab.base.errors import LabError
from lab.cluster.placement.plan import Link, Plan
from lab.protocol.volume.files import read_regular, write_atomically

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
class TaskRecord(recorded.TaskRecord):
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


NETWORK: Final = ipaddress.ip_network("10.77.0.0/16")

_FIRST_HOST: Final = 2
_MAX_PORT: Final = 65535


def address(position: int) -> str:
    """Return the address of the node at this position of the plan, from 0."""
    return str(NETWORK[_FIRST_HOST + position])


def nodes_of(plan: Plan, isolation: Isolation) -> tuple[NodeRecord, ...]:
    """Return the nodes. Only nodes with namespaces have addresses and links."""
    if isolation is Isolation.PROCESSES:
        return tuple(NodeRecord(node.name, None, None) for node in plan.nodes)
    return tuple(
        NodeRecord(node.name, address(position), node.link)
        for position, node in enumerate(plan.nodes)
    )


def addresses_of(plan: Plan, isolation: Isolation) -> list[str]:
    """Return `host:port` of each task.

    Without namespaces all tasks share the loopback. So each task gets its own port, counted from
    the plan's lowest port.
    """
    if isolation is Isolation.NAMESPACES:
        return [f"{task.node}:{task.port}" for task in plan.tasks]
    first = min(task.port for task in plan.tasks)
    return [f"localhost:{first + position}" for position in range(len(plan.tasks))]


def beside(plan: Plan, addresses: Sequence[str]) -> Plan:
    """Return a plan without namespaces whose ports are higher than those of other environments.

    Args:
        plan: The plan; its ports stay if none of them is taken.
        addresses: The addresses of the tasks of all environments that are up.
    """
    wanted = ports_of(addresses_of(plan, Isolation.PROCESSES))
    shared = ports_of([each for each in addresses if each.startswith("localhost:")])
    while not set(wanted).isdisjoint(shared):
        wanted = [port + 1 for port in wanted]
    tasks = zip(plan.tasks, wanted, strict=True)
    return replace(plan, tasks=tuple(replace(task, port=port) for task, port in tasks))


def tasks_of(plan: Plan, isolation: Isolation, *, root: Path, runs: Path) -> tuple[TaskRecord, ...]:
    """Return the tasks, each with the environment variables of its agent."""
    addresses = addresses_of(plan, isolation)
    return tuple(
        TaskRecord(
            task=task.name,
            node=task.node,
            address=address,
            gpus=task.gpus,
            cpuset=task.cpuset,
            environ=agent_environ(plan, task, addresses, root=root, runs=runs),
        )
        for task, address in zip(plan.tasks, addresses, strict=True)
    )


def notices_of(plan: Plan, why_no_namespaces: str | None) -> list[str]:
    """Return one line for each feature of the config that this environment does not support."""
    lines = []
    if any(task.memory_bytes is not None for task in plan.tasks):
        lines.append("local: memory limits are not enforced")
    if any(task.shm_bytes is not None for task in plan.tasks):
        lines.append("local: shm has no effect: tasks share the host's /dev/shm")
    if why_no_namespaces is not None:
        lines.append(
            f"local: no namespaces ({why_no_namespaces}): all tasks share the host's "
            "loopback, and TensorFlow's servers listen on every interface"
        )
        if any(node.link is not None for node in plan.nodes):
            lines.append("local: links are not applied without namespaces")
    return lines


def parse_cpuset(cpuset: str) -> set[int]:
    """Return the CPUs of a list such as `4-7,9`."""
    cpus: set[int] = set()
    for part in cpuset.split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def ports_of(addresses: Sequence[str]) -> list[int]:
    """Return the ports of `host:port` addresses."""
    return [int(address.rpartition(":")[2]) for address in addresses]


def check_ports_free(ports: Sequence[int]) -> None:
    """Check that these ports are free on every interface, as TensorFlow's servers need them.

    Raises:
        LabError: A port is in use or forbidden.
    """
    for port in ports:
        if not 0 < port <= _MAX_PORT:
            raise LabError(f"port {port} is out of range", "set a lower `port:` in the config")
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        try:
            # A recently closed port counts as free.
            socket.create_server(("", port), family=family, dualstack_ipv6=both).close()
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise LabError(
                f"port {port} cannot be used: {reason}",
                f"stop the process that uses it (`ss -ltnp 'sport = :{port}'`), "
                "or set another `port:` in the config",
            ) from error
