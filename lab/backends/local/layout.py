"""From the plan to what a local environment consists of: nodes, tasks, variables. Arithmetic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lab.backends.local.addresses import address as address_of_node
from lab.backends.local.state import Isolation, NodeRecord, TaskRecord
from lab.placement.plan import Plan, PlannedTask


def nodes_of(plan: Plan, isolation: Isolation) -> tuple[NodeRecord, ...]:
    """The nodes; they have addresses and links only where they have a network of their own."""
    if isolation is Isolation.PROCESSES:
        return tuple(NodeRecord(node.name, None, None) for node in plan.nodes)
    return tuple(
        NodeRecord(node.name, address_of_node(position), node.link)
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
            environ={**shared, **_own(task)},
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


def cpus_of(cpuset: str) -> set[int]:
    """The CPUs that `4-7,9` means."""
    found: set[int] = set()
    for part in cpuset.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def ports_of(addresses: Sequence[str]) -> list[int]:
    """The ports of `host:port`."""
    return [int(address.rpartition(":")[2]) for address in addresses]


def _own(task: PlannedTask) -> dict[str, str]:
    own = {
        "LAB_NODE": task.node,
        "LAB_TASK": task.name,
        "CUDA_VISIBLE_DEVICES": ",".join(task.gpus) or "-1",
    }
    if task.gpu_memory_fraction is not None:
        own["LAB_GPU_MEMORY_FRACTION"] = str(task.gpu_memory_fraction)
    return own
