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


@dataclass(frozen=True, slots=True)
class Component:
    """Nodes of a job with the same size.

    Attributes:
        nodes: The tasks of each node, by its name.
        tasks: The most tasks on one of them.
        cpus: CPUs of each task, or None for the site's default.
        memory_mib: Memory of each node in MiB, or None for the site's default.
        gpus: GPUs of each node.
    """

    nodes: tuple[tuple[str, tuple[PlannedTask, ...]], ...]
    tasks: int
    cpus: int | None
    memory_mib: int | None
    gpus: int

    def options(self) -> str:
        """Return the options of `sbatch` and `srun` for its size."""
        nodes = len(self.nodes)
        options = [
            f"--nodes={nodes}",
            # Without it, Slurm 24.11 starts as many tasks as the first component of a job has.
            f"--ntasks={nodes * self.tasks}",
            f"--ntasks-per-node={self.tasks}",
        ]
        if self.cpus is not None:
            options.append(f"--cpus-per-task={self.cpus}")
        if self.memory_mib is not None:
            options.append(f"--mem={self.memory_mib}M")
        if self.gpus:
            options.append(f"--gpus-per-node={self.gpus}")
        return " ".join(options)


def components_of(plan: Plan, *, het: bool) -> list[Component]:
    """Divide the nodes of a plan into components. Nodes without tasks are left out.

    Args:
        plan: The plan.
        het: Whether to make a component for each size; otherwise one has the largest size.
    """
    tasks: dict[str, list[PlannedTask]] = {node.name: [] for node in plan.nodes}
    for task in plan.tasks:
        tasks[task.node].append(task)
    single = [_component([(name, tuple(own))]) for name, own in tasks.items() if own]
    sizes: dict[str, list[Component]] = {}
    for component in single:
        sizes.setdefault(component.options() if het else "", []).append(component)
    return [_component([component.nodes[0] for component in same]) for same in sizes.values()]


def _component(nodes: Sequence[tuple[str, tuple[PlannedTask, ...]]]) -> Component:
    tasks = [own for _, own in nodes]
    each = [task for own in tasks for task in own]
    cpus = [math.ceil(task.cpus) for task in each if task.cpus is not None]
    memory = [sum(task.memory_bytes or 0 for task in own) for own in tasks]
    return Component(
        nodes=tuple(nodes),
        tasks=max(map(len, tasks)),
        cpus=max(cpus) if cpus else None,
        memory_mib=math.ceil(max(memory) / MIB) or None,
        gpus=max(sum(len(task.gpus) for task in own) for own in tasks),
    )
