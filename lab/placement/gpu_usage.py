"""Finds planned GPUs that other processes already use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lab.gpu.model import Gpu, Inventory, Process
from lab.placement.plan import Plan
from lab.text import clipped, short
from lab.units import memory_for_people

_DISPLAY_SERVERS: Final = frozenset({"Xorg", "Xwayland", "X", "gnome-shell", "kwin_wayland"})
"""Display servers; they are ignored, though some of them have a compute context."""

_NAMED: Final = 4  # maximum number of tasks or processes in a line
_LONGEST_PROGRAM: Final = 60  # characters of its name


def gpus_in_use(plan: Plan, inventory: Inventory) -> list[str]:
    """Return a line for each planned GPU on which a process computes.

    Args:
        plan: The plan.
        inventory: The host of the plan, with the processes on its GPUs.

    Returns:
        `GPU 2 (GPU-…, worker-0) is in use: python (pid 4711, 3.2 GiB)`.
    """
    holders: dict[str, list[str]] = {}
    for task in plan.tasks:
        for gpu in task.gpus:
            holders.setdefault(gpu, []).append(task.name)
    return held_in_use(holders, inventory)


def held_in_use(holders: Mapping[str, Sequence[str]], inventory: Inventory) -> list[str]:
    """Return a line for each GPU on which a process computes.

    Args:
        holders: Device id of a GPU to the names of its holders, for the line.
        inventory: The host, with the processes on its GPUs.
    """
    by_id = {gpu.device_id: gpu for gpu in inventory.gpus}
    gpus = [by_id[device_id] for device_id in holders if device_id in by_id]
    return [_line(gpu, holders[gpu.device_id]) for gpu in gpus if _computing(gpu)]


def _computing(gpu: Gpu) -> list[Process]:
    return [
        process
        for process in gpu.processes
        if process.computes and process.name.rpartition("/")[2] not in _DISPLAY_SERVERS
    ]


def _line(gpu: Gpu, tasks: Sequence[str]) -> str:
    id_and_tasks = _listed([short(gpu.device_id), *tasks])
    used_by = _listed([_process(process) for process in _computing(gpu)])
    return f"GPU {gpu.index} ({id_and_tasks}) is in use: {used_by}"


def _process(process: Process) -> str:
    name = clipped(process.name, _LONGEST_PROGRAM) or "a process"
    facts = [f"pid {process.pid}"]
    if process.memory_bytes is not None:
        facts.append(memory_for_people(process.memory_bytes))
    return f"{name} ({', '.join(facts)})"


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more} more" if more > 0 else "")
