"""CPU sets and limits: a node's CPUs and memory divided among its tasks, within the box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.cluster.model import Node
from lab.sizes import memory_for_people


@dataclass(frozen=True, slots=True)
class Share:
    """What one task may use.

    Attributes:
        cpus: CPUs at once, or None for no limit beside its set.
        cpuset: The CPUs that are its own (`4-7`), or None for no pinning.
        memory_bytes: Memory, or None for no limit.
    """

    cpus: float | None
    cpuset: str | None
    memory_bytes: int | None


def share_out(
    homes: Sequence[str],
    nodes: Mapping[str, Node],
    cpus: int | None,
    memory_bytes: int | None,
) -> tuple[list[Share], list[str]]:
    """Divide CPUs and memory.

    Where the box has a CPU for every task, each task gets a set of its own: as many as its node's
    `cpus` allow it, and where the node states none, an equal part of what is left. Elsewhere there
    are no sets, and limits that are larger than the box are clamped to it.

    Args:
        homes: The node of each task, in the plan's order.
        nodes: The nodes by name.
        cpus: CPUs of the box, or None where they are not known.
        memory_bytes: Memory of the box, or None where it is not known.

    Returns:
        A share per task, and a notice per limit that could not be kept.
    """
    tasks_on: dict[str, int] = {}
    for home in homes:
        tasks_on[home] = tasks_on.get(home, 0) + 1
    wanted = [_part(nodes[home].cpus, tasks_on[home]) for home in homes]
    notices: list[str] = []
    sizes: list[int] | None = None
    if cpus is not None and cpus >= len(homes):
        sizes = _sizes(wanted, cpus)
        limits = [want and min(want, size) for want, size in zip(wanted, sizes, strict=True)]
    elif cpus is not None:
        notices.append(f"{_cpus(cpus)} for {len(homes)} tasks: CPU sets are left out")
        limits = [want and min(want, float(cpus)) for want in wanted]
    else:
        limits = list(wanted)
    if limits != wanted:
        notices.append(f"the nodes' CPU limits are clamped to the {_cpus(cpus or 0)} of this box")
    memory = {name: node.memory for name, node in nodes.items()}
    if memory_bytes is not None and any((size or 0) > memory_bytes for size in memory.values()):
        memory = {name: size and min(size, memory_bytes) for name, size in memory.items()}
        box = memory_for_people(memory_bytes)
        notices.append(f"the nodes' memory limits are clamped to the {box} of this box")
    sets = _sets(sizes) if sizes is not None else [None] * len(homes)
    shares = [
        Share(limit, cpuset, _whole_part(memory[home], tasks_on[home]))
        for home, limit, cpuset in zip(homes, limits, sets, strict=True)
    ]
    return shares, notices


def _part(amount: float | None, tasks: int) -> float | None:
    # The engine counts in hundredths; less than one of them it refuses.
    return None if amount is None else max(0.01, int(amount * 100 / tasks + 1e-6) / 100)


def _whole_part(amount: int | None, tasks: int) -> int | None:
    return None if amount is None else amount // tasks


def _sizes(wanted: Sequence[float | None], cpus: int) -> list[int]:
    """The size of each task's set: at least one CPU each, `cpus` together at most."""
    stated = [max(1, int(want)) for want in wanted if want is not None]
    open_tasks = len(wanted) - len(stated)
    level = _level(stated, cpus - open_tasks)
    left = cpus - sum(min(size, level) for size in stated)
    # Equal parts, so that no worker is faster than another; the box keeps what is left over.
    part = left // open_tasks if open_tasks else 0
    return [part if want is None else min(max(1, int(want)), level) for want in wanted]


def _level(sizes: Sequence[int], cpus: int) -> int:
    """The largest size to which sets can be cut so that all of them fit."""
    level = cpus
    left, open_sizes = cpus, sorted(sizes)
    for position, size in enumerate(open_sizes):
        level = left // (len(open_sizes) - position)
        if size > level:
            return level
        left -= size
    return max(open_sizes, default=level)


def _sets(sizes: Sequence[int]) -> list[str | None]:
    sets: list[str | None] = []
    first = 0
    for size in sizes:
        sets.append(str(first) if size == 1 else f"{first}-{first + size - 1}")
        first += size
    return sets


def _cpus(count: int) -> str:
    return "1 CPU" if count == 1 else f"{count} CPUs"
