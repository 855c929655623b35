"""Makes a plan: allocates the GPUs and CPUs of a host to the tasks of a config.

Also finds planned GPUs that other processes already use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lab.base.errors import InputError, LabError
from lab.base.formatting import counted, listed
from lab.base.text import clipped
from lab.base.units import memory_for_people
from lab.cluster.config import Cluster
from lab.cluster.config.allocation import allocate_gpus, tasks_by_node
from lab.cluster.config.cluster import Node
from lab.cluster.config.load import text_of
from lab.cluster.gpu import Gpu, Inventory, Process, take_inventory
from lab.cluster.gpu.values import SLICE
from lab.cluster.placement.cpuset import allocate_cpus
from lab.cluster.placement.plan import Link, Plan, PlannedNode, PlannedTask

HINT = (
    "choose a config of `clusters/` that fits, or use `--gpus index` to render for another host, "
    "or `--gpus none` for CPUs only"
)
_AS_PINNED = "as pinned"


@dataclass(frozen=True, slots=True)
class Placed:
    """A plan, with the host that it was made for.

    Attributes:
        plan: The plan.
        inventory: The host; None if the hosts are not known yet.
    """

    plan: Plan
    inventory: Inventory | None


@dataclass(frozen=True, slots=True)
class _NodeGpus:
    """The GPUs of a node.

    Attributes:
        ids: Their device ids, in the order in which the node's tasks take them.
        why: Why the node has these GPUs, for the user.
    """

    ids: tuple[str, ...] = ()
    why: str = ""


def place_here(cluster: Cluster, mode: str, runtime: str) -> Placed:
    """Place a config on this host.

    Args:
        cluster: The config.
        mode: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        runtime: The tasks' runtime.

    Raises:
        LabError: The config does not fit the host, or its driver does not answer.
    """
    inventory = take_inventory(mode, cluster)
    return Placed(replace(place(cluster, inventory), runtime=runtime), inventory)


def place(cluster: Cluster, inventory: Inventory) -> Plan:
    """Place a config on a host. The same config and host always give the same plan.

    Args:
        cluster: The config.
        inventory: The host, and how its GPUs are pinned.

    Raises:
        LabError: The host has too few GPUs, or not a pinned one.
        InputError: Two nodes pin the same GPU by different names, a node pins a GPU in MIG mode as
            a whole, or a task would get more than one slice.
    """
    gpus_by_node = _gpus_by_node(cluster, inventory)
    by_id = {gpu.device_id: gpu for gpu in inventory.gpus}
    links = {name: Link(link.rate, link.delay) for name, link in cluster.links.items()}
    nodes = tuple(
        PlannedNode(name, gpus_by_node[name].ids, links.get(name)) for name in cluster.nodes
    )
    tasks, shortfalls, reasons = _tasks(cluster, inventory, gpus_by_node, by_id)
    explained = [
        f"{name}: {_named(node_gpus.ids, by_id)}: {node_gpus.why}"
        for name, node_gpus in gpus_by_node.items()
        if node_gpus.ids
    ]
    return Plan(
        name=cluster.name,
        mode=inventory.mode,
        cluster_sha256=cluster.sha256,
        nodes=nodes,
        tasks=tasks,
        notices=(*inventory.notices, *shortfalls),
        shortfalls=tuple(shortfalls),
        reasons=(*explained, *reasons),
        config=text_of(cluster),
    )


def _tasks(
    cluster: Cluster,
    inventory: Inventory,
    gpus_by_node: Mapping[str, _NodeGpus],
    by_id: Mapping[str, Gpu],
) -> tuple[tuple[PlannedTask, ...], list[str], list[str]]:
    """Return the tasks, the notices of shortfalls, and the reasons for the CPUs."""
    placed = {}
    for node, slots in tasks_by_node(cluster.jobs).items():
        gpus = allocate_gpus(node, cluster.nodes[node], slots)
        ids = gpus_by_node[node].ids
        for position, (slot, taken) in enumerate(zip(slots, gpus, strict=True)):
            # With `--gpus none` a node has no GPUs, whatever the config states.
            own = tuple(ids[gpu] for gpu in taken) if ids else ()
            _check_slices(slot.job, slot.index, own)
            placed[slot.job, slot.index] = PlannedTask(
                slot.job,
                slot.index,
                node,
                cluster.port + position,
                own,
                shares_gpus=slot.share and bool(own),
                gpu_memory_fraction=slot.gpu_memory_fraction if own else None,
                shm_bytes=cluster.nodes[node].shm,
            )
    order = [(job, index) for job in cluster.jobs for index in range(len(cluster.jobs[job].on))]
    tasks = [placed[key] for key in order]
    # A GPU of another host has no known CPUs.
    near = [tuple(by_id[gpu].cpus if gpu in by_id else () for gpu in task.gpus) for task in tasks]
    limits, shortfalls = allocate_cpus(
        [task.node for task in tasks],
        cluster.nodes,
        _cpu_ids(inventory),
        inventory.memory_bytes,
        near,
    )
    limited = tuple(
        replace(task, cpus=limit.cpus, cpuset=limit.cpuset, memory_bytes=limit.memory_bytes)
        for task, limit in zip(tasks, limits, strict=True)
    )
    reasons = [f"{task.name}: {limit.why}" for task, limit in zip(tasks, limits, strict=True)]
    return limited, shortfalls, reasons


def _cpu_ids(inventory: Inventory) -> Sequence[int] | None:
    if inventory.cpu_ids:
        return inventory.cpu_ids
    return None if inventory.cpus is None else range(inventory.cpus)


def _check_slices(job: str, index: int, ids: Sequence[str]) -> None:
    """Check that CUDA will show a task all its GPUs.

    A process with a MIG slice sees only one slice and no other GPU (NVIDIA Multi-Instance GPU
    User Guide, "CUDA Device Enumeration").
    """
    slices = sum(gpu.startswith(SLICE) for gpu in ids)
    if not slices or len(ids) == 1:
        return
    whole = len(ids) - slices
    parts = [f"{slices} MIG slice{'s'[: slices > 1]}", *([counted(whole, "GPU")] if whole else [])]
    raise InputError(
        f"jobs.{job}.on.{index}: {job}-{index} would get {' and '.join(parts)}, but a process"
        " that uses a MIG slice sees no other GPU",
        "give every task one slice (`gpus: 1` in its job, as many pins on the node as tasks), or"
        " whole GPUs only",
    )


def _gpus_by_node(cluster: Cluster, inventory: Inventory) -> dict[str, _NodeGpus]:
    """Return the GPUs of each node."""
    if inventory.mode == "none":
        return dict.fromkeys(cluster.nodes, _NodeGpus())
    if inventory.mode == "index" and any(_ids(node) for node in cluster.nodes.values()):
        return _pinned_elsewhere(cluster)
    # Imported here: a plan without GPUs needs neither.
    from lab.cluster.placement.gpu_selection import select_gpus, select_slices  # noqa: PLC0415

    whole = inventory.whole_gpus
    # A container that was given MIG devices only, such as a seat of a class, lists no other GPU.
    countable = whole or inventory.slices
    _check_cut(cluster, inventory)
    _check_size(cluster, inventory, countable)
    by_pin: dict[int | str, Gpu] = {gpu.device_id: gpu for gpu in (*whole, *inventory.slices)}
    by_pin.update({gpu.index: gpu for gpu in whole})
    holders: dict[str, str] = {}
    for name, node in cluster.nodes.items():
        for pin in node.pins:
            _pin(name, pin, by_pin, holders, inventory)
    free = [gpu for gpu in countable if gpu.device_id not in holders]
    counts = {
        name: node.gpu_count
        for name, node in cluster.nodes.items()
        if node.gpu_count and not node.pins
    }
    chosen = select_gpus(counts, free, inventory.pairs) if whole else select_slices(counts, free)
    found = {
        name: _NodeGpus(tuple(by_pin[pin].device_id for pin in node.pins), _AS_PINNED)
        for name, node in cluster.nodes.items()
    }
    for name, selected in chosen.items():
        found[name] = _NodeGpus(tuple(gpu.device_id for gpu in selected.gpus), selected.why)
    return found


def _ids(node: Node) -> list[str]:
    return [pin for pin in node.pins if isinstance(pin, str)]


def _pinned_elsewhere(cluster: Cluster) -> dict[str, _NodeGpus]:
    """Return the pinned UUIDs of another host as they are: their indices are unknown."""
    for name, node in cluster.nodes.items():
        if node.gpu_count and len(_ids(node)) < node.gpu_count:
            raise InputError(
                f"nodes.{name}.gpus: other nodes pin UUIDs, with unknown indices on another host",
                "for `--gpus index`, pin UUIDs on all nodes or on none",
            )
    return {name: _NodeGpus(tuple(_ids(node)), _AS_PINNED) for name, node in cluster.nodes.items()}


def _check_cut(cluster: Cluster, inventory: Inventory) -> None:
    """Check that no GPU in MIG mode is pinned as a whole."""
    slices: dict[int | str, list[str]] = {}
    for gpu in inventory.gpus:
        if gpu.is_slice:
            for name in (gpu.index, gpu.slice_of):
                slices.setdefault(name, []).append(gpu.device_id)
    for name, node in cluster.nodes.items():
        for pin in node.pins:
            if pin in slices:
                named = ", ".join(slices[pin])
                raise InputError(
                    f"nodes.{name}.gpus: GPU {pin} is divided into MIG slices ({named}), so it"
                    " cannot be used as a whole",
                    "pin slices by their UUIDs, or turn MIG off as root (`nvidia-smi -mig 0`)",
                )


def _pin(
    name: str,
    pin: int | str,
    by_pin: Mapping[int | str, Gpu],
    holders: dict[str, str],
    inventory: Inventory,
) -> None:
    if pin not in by_pin:
        known = ", ".join(gpu for gpu in by_pin if isinstance(gpu, str)) or "none"
        raise LabError(
            f"nodes.{name}.gpus: this host has no GPU {pin} (it has {known}{_left_out(inventory)})",
            HINT,
        )
    device = by_pin[pin].device_id
    if device in holders:
        raise InputError(
            f"nodes.{name}.gpus: GPU {pin} is {device}, which {holders[device]} already has",
            "give each GPU to one node",
        )
    holders[device] = name


def _check_size(cluster: Cluster, inventory: Inventory, countable: Sequence[Gpu]) -> None:
    cut = len(inventory.slices)
    counts_slices = bool(cut) and countable == inventory.slices
    pins = sum(1 for node in cluster.nodes.values() for pin in _ids(node) if pin[:4] == SLICE)
    needed = cluster.gpus_needed - (0 if counts_slices else pins)
    if needed > len(countable):
        also = f" and {cut} MIG slices (to use them, pin their UUIDs)" if cut else ""
        has = counted(cut, "MIG slice") if counts_slices else counted(len(countable), "GPU") + also
        raise LabError(
            f"{cluster.name!r} needs {counted(needed, 'GPU')}, but this host has {has}"
            f"{_left_out(inventory)}",
            HINT,
        )


def _left_out(inventory: Inventory) -> str:
    return "".join(f"; {reason}" for reason in inventory.left_out)


def _named(ids: Sequence[str], by_id: Mapping[str, Gpu]) -> str:
    """Return `GPU-…, GPU-… (2, 3)`, or `GPU 2, 3` if only indices are known."""
    names = ", ".join(ids)
    if all(gpu.isdecimal() for gpu in ids):
        return f"GPU {names}"
    known = [str(by_id[gpu].index) for gpu in ids if gpu in by_id]
    return f"{names} ({', '.join(known)})" if known else names


_DISPLAY_SERVERS: Final = frozenset({"Xorg", "Xwayland", "X", "gnome-shell", "kwin_wayland"})
"""Display servers; they are ignored, though some of them have a compute context."""

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
    id_and_tasks = listed([gpu.device_id, *tasks])
    used_by = listed([_process(process) for process in _computing(gpu)])
    return f"GPU {gpu.index} ({id_and_tasks}) is in use: {used_by}"


def _process(process: Process) -> str:
    name = clipped(process.name, _LONGEST_PROGRAM) or "a process"
    facts = [f"pid {process.pid}"]
    if process.memory_bytes is not None:
        facts.append(memory_for_people(process.memory_bytes))
    return f"{name} ({', '.join(facts)})"
