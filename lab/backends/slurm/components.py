"""The components of a job: nodes of a config with the same size.

Each node of the config becomes a node of the job, so that its tasks are together. Nodes of the same
size are one component of a heterogeneous job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lab.placement.plan import Plan, PlannedTask
from lab.units import MIB

Nodes = tuple[tuple[str, tuple[PlannedTask, ...]], ...]
"""The names of nodes, each with its tasks."""


@dataclass(frozen=True, slots=True)
class NodeSize:
    """What a node of a job has.

    Attributes:
        tasks: The number of its tasks.
        cpus: CPUs of each task, or None for the site's default.
        memory_mib: Its memory in MiB, or None for the site's default.
        gpus: The number of its GPUs.
    """

    tasks: int
    cpus: int | None
    memory_mib: int | None
    gpus: int


@dataclass(frozen=True, slots=True)
class Component:
    """Nodes of a job with the same size."""

    size: NodeSize
    nodes: Nodes

    def options(self) -> str:
        """Return the options of `sbatch` and `srun` for it."""
        size, nodes = self.size, len(self.nodes)
        options = [
            f"--nodes={nodes}",
            # Without it, Slurm 24.11 starts as many tasks as the first component of a job has.
            f"--ntasks={nodes * size.tasks}",
            f"--ntasks-per-node={size.tasks}",
        ]
        if size.cpus is not None:
            options.append(f"--cpus-per-task={size.cpus}")
        if size.memory_mib is not None:
            options.append(f"--mem={size.memory_mib}M")
        if size.gpus:
            options.append(f"--gpus-per-node={size.gpus}")
        return " ".join(options)


def components_of(plan: Plan) -> list[Component]:
    """Return a component for each size of node. Nodes without tasks are left out."""
    sizes: dict[NodeSize, Nodes] = {}
    for node in plan.nodes:
        if tasks := tuple(task for task in plan.tasks if task.node == node.name):
            size = _size(tasks)
            sizes[size] = (*sizes.get(size, ()), (node.name, tasks))
    return [Component(size, nodes) for size, nodes in sizes.items()]


def _size(tasks: Sequence[PlannedTask]) -> NodeSize:
    cpus = [math.ceil(task.cpus) for task in tasks if task.cpus is not None]
    memory = sum(task.memory_bytes or 0 for task in tasks)
    return NodeSize(
        tasks=len(tasks),
        cpus=max(cpus, default=None),
        memory_mib=math.ceil(memory / MIB) or None,
        gpus=sum(len(task.gpus) for task in tasks),
    )
