"""Allocates CPU sets, CPU limits and memory limits: a node's, divided among its tasks."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from lab.base.formatting import counted
from lab.base.units import memory_for_people
from lab.cluster.config.cluster import Node

CloseCpus = tuple[tuple[int, ...], ...]
"""For each GPU of a task, the CPUs that are close to it; () if unknown."""


@dataclass(frozen=True, slots=True)
class CpuAllocation:
    """The limits of one task.

    Attributes:
        cpus: CPUs at once, or None for no limit beside its set.
        cpuset: Its own CPUs (`4-7,12`), or None for no pinning.
        memory_bytes: Memory, or None for no limit.
        why: Why these CPUs, for the user.
    """

    cpus: float | None
    cpuset: str | None
    memory_bytes: int | None
    why: str = ""


def allocate_cpus(
    task_nodes: Sequence[str],
    nodes: Mapping[str, Node],
    cpu_ids: Sequence[int] | None,
    memory_bytes: int | None,
    near: Sequence[CloseCpus],
) -> tuple[list[CpuAllocation], list[str]]:
    """Allocate CPUs and memory to tasks.

    If the host has a CPU for every task, each task gets its own CPU set. Its size follows the
    node's `cpus`, or is an equal part of the CPUs left. A task with GPUs gets close CPUs first.
    Otherwise there are no sets. Limits larger than the host are clamped.

    Args:
        task_nodes: The node of each task, in the plan's order.
        nodes: The nodes by name.
        cpu_ids: The CPUs of the host, ascending, or None if unknown.
        memory_bytes: Memory of the host, or None if unknown.
        near: For each task, the CPUs that are close to its GPUs.

    Returns:
        An allocation per task, and a notice per limit that cannot be kept.
    """
    tasks_on = Counter(task_nodes)
    stated = [_part(nodes[node].cpus, tasks_on[node]) for node in task_nodes]
    limits, sets = stated, [list[int]() for _ in task_nodes]
    notices: list[str] = []
    if cpu_ids is not None and len(cpu_ids) >= len(task_nodes):
        sizes = _sizes(stated, len(cpu_ids))
        limits = [cpus and min(cpus, size) for cpus, size in zip(stated, sizes, strict=True)]
        sets = _sets(sizes, cpu_ids, near)
    elif cpu_ids is not None:
        has = counted(len(cpu_ids), "CPU")
        notices.append(f"{has} for {counted(len(task_nodes), 'task')}: CPU sets are left out")
        limits = [cpus and min(cpus, float(len(cpu_ids))) for cpus in stated]
    if limits != stated:
        has = counted(len(cpu_ids or ()), "CPU")
        notices.append(f"the nodes' CPU limits are clamped to the {has} of this host")
    memory, memory_notices = _memory(nodes, tasks_on, memory_bytes)
    notices += memory_notices
    allocations = [
        CpuAllocation(
            cpus=limit,
            cpuset=ranges(own) if own else None,
            memory_bytes=(size := memory[node]) and size // tasks_on[node],
            why=_why(own, close),
        )
        for node, limit, own, close in zip(task_nodes, limits, sets, near, strict=True)
    ]
    return allocations, notices


def ranges(cpus: Iterable[int]) -> str:
    """Return CPUs in the kernel's form: `4-7,12`."""
    parts = []
    # Within a range, the number of a CPU minus its position is constant.
    for _, group in groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0]):
        members = [cpu for _, cpu in group]
        first, last = members[0], members[-1]
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)


def _memory(
    nodes: Mapping[str, Node], tasks_on: Mapping[str, int], memory_bytes: int | None
) -> tuple[dict[str, int | None], list[str]]:
    """Return the nodes' memory, clamped to the host's, and notices."""
    memory = {name: node.memory for name, node in nodes.items()}
    if memory_bytes is None:
        return memory, []
    notices = []
    host = memory_for_people(memory_bytes)
    if any((size or 0) > memory_bytes for size in memory.values()):
        memory = {name: size and min(size, memory_bytes) for name, size in memory.items()}
        notices.append(f"the nodes' memory limits are clamped to the {host} of this host")
    together = sum(memory[name] or 0 for name in tasks_on)
    if together > memory_bytes:
        total = memory_for_people(together)
        notices.append(
            f"the nodes' memory limits are {total} together, but this host has {host}: the tasks"
            " may run out of memory"
        )
    return memory, notices


def _part(amount: float | None, tasks: int) -> float | None:
    # The engine counts CPUs in hundredths, and refuses less than 0.01.
    return None if amount is None else max(0.01, int(amount * 100 / tasks + 1e-6) / 100)


def _sizes(stated: Sequence[float | None], cpus: int) -> list[int]:
    """Return the size of each task's set: at least one CPU each, at most `cpus` together."""
    sizes = [max(1, int(amount)) for amount in stated if amount is not None]
    open_tasks = len(stated) - len(sizes)
    level = _level(sizes, cpus - open_tasks)
    left = cpus - sum(min(size, level) for size in sizes)
    # Equal parts, so that no worker is faster than another; the rest stays unused.
    part = left // open_tasks if open_tasks else 0
    return [part if amount is None else min(max(1, int(amount)), level) for amount in stated]


def _level(sizes: Sequence[int], cpus: int) -> int:
    """Return the largest maximum size of a set with which all sets fit."""

    def used(level: int) -> int:
        return sum(min(size, level) for size in sizes)

    return bisect_right(range(1, cpus + 1), cpus, key=used)


def _sets(
    sizes: Sequence[int], cpu_ids: Sequence[int], near: Sequence[CloseCpus]
) -> list[list[int]]:
    """Return the CPUs of each task; no CPU is in two sets."""
    free = set(cpu_ids)
    sets: list[list[int]] = [[] for _ in sizes]
    close = [set[int]().union(*places) for places in near]
    # Tasks with the fewest close CPUs come first, before other tasks take these CPUs.
    for task in sorted(range(len(sizes)), key=lambda task: len(close[task])):
        sets[task] += sorted(free & close[task])[: sizes[task]]
        free.difference_update(sets[task])
    rest = iter(sorted(free))
    for task in sorted(range(len(sizes)), key=lambda task: (not close[task], task)):
        sets[task] += islice(rest, sizes[task] - len(sets[task]))
    return sets


def _why(own: Sequence[int], near: CloseCpus) -> str:
    if not own:
        return "no CPUs of its own"
    text = f"{'CPU' if len(own) == 1 else 'CPUs'} {ranges(own)}"
    if not near:
        return text
    close = set[int]().union(*near)
    far = [cpu for cpu in own if cpu not in close]
    if not close:
        return f"{text}; which CPUs are close to its GPUs is unknown"
    if not far:
        return f"{text}, close to its GPUs"
    if len(far) == len(own):
        return f"{text}; no CPU close to its GPUs is left"
    return f"{text}; {ranges(far)} not close to its GPUs: no more are left"
