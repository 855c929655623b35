"""Planned cards that somebody uses already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lab.gpus.model import Gpu, Inventory, Process
from lab.plan import Plan
from lab.sizes import memory_for_people
from lab.task.text import clipped, short

_NAMED: Final = 4  # so many tasks, or processes, are named in a line
_LONGEST_PROGRAM: Final = 60  # characters of its name


def busy(plan: Plan, inventory: Inventory) -> list[str]:
    """Which cards of a plan's tasks are in use, a line for each.

    Args:
        plan: The plan.
        inventory: The box that it was made for, with the processes on its cards.

    Returns:
        `GPU 2 (GPU-…, worker-0) is in use: python (pid 4711, 3.2 GiB)`.
    """
    holders: dict[str, list[str]] = {}
    for task in plan.tasks:
        for each in task.gpus:
            holders.setdefault(each, []).append(task.name)
    by_id = {gpu.device_id: gpu for gpu in inventory.gpus}
    return [
        _line(by_id[each], tasks)
        for each, tasks in holders.items()
        if each in by_id and by_id[each].processes
    ]


def _line(gpu: Gpu, tasks: Sequence[str]) -> str:
    who = _listed([short(gpu.device_id), *tasks])
    used_by = _listed([_process(process) for process in gpu.processes])
    return f"GPU {gpu.index} ({who}) is in use: {used_by}"


def _process(process: Process) -> str:
    name = clipped(process.name, _LONGEST_PROGRAM) or "a process"
    facts = [f"pid {process.pid}"]
    if process.memory_bytes is not None:
        facts.append(memory_for_people(process.memory_bytes))
    return f"{name} ({', '.join(facts)})"


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + (f" and {more} more" if more > 0 else "")
