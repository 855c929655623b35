"""What a local environment of a plan consists of: nodes, addresses, ports, tasks, variables."""

from __future__ import annotations

import errno
import ipaddress
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.backends.local.state import Isolation, NodeRecord, TaskRecord
from lab.errors import LabError
from lab.placement.plan import Plan

NETWORK: Final = ipaddress.ip_network("10.77.0.0/16")

_FIRST_HOST: Final = 2
_MAX_PORT: Final = 65535
_ANY: Final = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))  # noqa: S104 (TensorFlow's)


def address(position: int) -> str:
    """The address of the node at this position of the plan, from 0."""
    return str(NETWORK[_FIRST_HOST + position])


def nodes_of(plan: Plan, isolation: Isolation) -> tuple[NodeRecord, ...]:
    """The nodes; they have addresses and links only where they have a network of their own."""
    if isolation is Isolation.PROCESSES:
        return tuple(NodeRecord(node.name, None, None) for node in plan.nodes)
    return tuple(
        NodeRecord(node.name, address(position), node.link)
        for position, node in enumerate(plan.nodes)
    )


def addresses_of(plan: Plan, isolation: Isolation) -> list[str]:
    """`host:port` of each task.

    Without namespaces all tasks share the loopback, where each needs a port of its own: they
    follow the plan's lowest one.
    """
    if isolation is Isolation.NAMESPACES:
        return [f"{task.node}:{task.port}" for task in plan.tasks]
    first = min(task.port for task in plan.tasks)
    return [f"localhost:{first + position}" for position in range(len(plan.tasks))]


def tasks_of(plan: Plan, isolation: Isolation, *, root: Path, runs: Path) -> tuple[TaskRecord, ...]:
    """The tasks, each with the variables of its agent."""
    addresses = addresses_of(plan, isolation)
    spec: dict[str, list[str]] = {}
    for task, address in zip(plan.tasks, addresses, strict=True):
        spec.setdefault(task.job, []).append(address)
    shared = {
        "LAB_PROJECT": plan.name,
        "LAB_CLUSTER": json.dumps(spec),
        "LAB_RUNS": str(runs),
        "LAB_SCRIPTS": str(root / "scripts"),
        "LAB_DATA": str(root / "data"),
        "LAB_TENSORFLOW_VERSION": plan.tensorflow,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    return tuple(
        TaskRecord(
            task=task.name,
            node=task.node,
            address=address,
            gpus=task.gpus,
            cpuset=task.cpuset,
            environ={
                **shared,
                "LAB_NODE": task.node,
                "LAB_TASK": task.name,
                "CUDA_VISIBLE_DEVICES": ",".join(task.gpus) or "-1",
                **_fraction(task.gpu_memory_fraction),
            },
        )
        for task, address in zip(plan.tasks, addresses, strict=True)
    )


def notices_of(plan: Plan, why_no_namespaces: str | None) -> list[str]:
    """One line for each thing that the description asks for and this environment has not."""
    lines = []
    if any(task.memory_bytes is not None for task in plan.tasks):
        lines.append("local: memory limits are not enforced")
    if why_no_namespaces is not None:
        lines.append(
            f"local: no namespaces here ({why_no_namespaces}), so all tasks share this machine's "
            "loopback, and TensorFlow's servers listen on every interface of it"
        )
        if any(node.link is not None for node in plan.nodes):
            lines.append("local: links are not applied without namespaces")
    return lines


def parse_cpuset(cpuset: str) -> set[int]:
    """The CPUs that `4-7,9` means."""
    found: set[int] = set()
    for part in cpuset.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def ports_of(addresses: Sequence[str]) -> list[int]:
    """The ports of `host:port`."""
    return [int(address.rpartition(":")[2]) for address in addresses]


def check_ports_free(ports: Sequence[int]) -> None:
    """See that TensorFlow's servers, which listen on every interface, can have these ports.

    Raises:
        LabError: One is in use or forbidden; it is named.
    """
    for port in ports:
        if not 0 < port <= _MAX_PORT:
            raise LabError(
                f"there is no port {port}", "give `port:` in the description a lower one"
            )
        for family, host in _ANY:
            if fault := _fault(family, host, port):
                raise LabError(
                    f"port {port} cannot be used: {fault}",
                    f"end what uses it (`ss -ltnp 'sport = :{port}'`), "
                    "or choose another `port:` in the description",
                )


def _fault(family: socket.AddressFamily, host: str, port: int) -> str | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # A port that was used a moment ago is free; one with a listener is not.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family is socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((host, port))
    except OSError as error:
        # Any other error means that this machine lacks the protocol, so that nothing listens.
        return error.strerror if error.errno in {errno.EADDRINUSE, errno.EACCES} else None
    return None


def _fraction(fraction: float | None) -> dict[str, str]:
    return {} if fraction is None else {"LAB_GPU_MEMORY_FRACTION": str(fraction)}
