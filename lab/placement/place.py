"""The arithmetic of a plan: which GPU of the box becomes whose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lab.config import Cluster, LinkConfig, Node
from lab.config.allocation import allocate_gpus, tasks_by_node
from lab.errors import InputError, LabError
from lab.formatting import counted
from lab.gpu import Gpu, Inventory
from lab.gpu.model import SLICE
from lab.placement.cpuset import CloseCpus, allocate_cpus
from lab.placement.gpu_selection import select_gpus
from lab.placement.plan import Link, Plan, PlannedNode, PlannedTask
from lab.task.text import short

HINT = (
    "choose a description of `clusters/` that fits, or `--gpus index` to render for another box, "
    "or `--gpus none` for CPUs only"
)
_AS_PINNED = "as pinned"


@dataclass(frozen=True, slots=True)
class _NodeGpus:
    """The cards of a node.

    Attributes:
        ids: Their device ids, in the order in which the node's tasks take them.
        why: Why it has these, for a person.
    """

    ids: tuple[str, ...] = ()
    why: str = ""


def place(cluster: Cluster, inventory: Inventory) -> Plan:
    """Place a description on a box. The same two always give the same plan.

    Args:
        cluster: The description.
        inventory: The box, and how its GPUs are pinned.

    Raises:
        LabError: The box is too small, or has no such GPU.
        InputError: Two names of one GPU are given to two nodes, a GPU that is cut into MIG slices
            is pinned as a whole, or a task would get more than one slice.
    """
    held = _gpus_by_node(cluster, inventory)
    by_id = {gpu.device_id: gpu for gpu in inventory.gpus}
    nodes = tuple(
        PlannedNode(name, held[name].ids, _link(cluster.links.get(name))) for name in cluster.nodes
    )
    tasks, shortfalls, reasons = _tasks(cluster, inventory, held, by_id)
    explained = [
        f"{name}: {_named(holding.ids, by_id)}: {holding.why}"
        for name, holding in held.items()
        if holding.ids
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
    )


def _tasks(
    cluster: Cluster,
    inventory: Inventory,
    held: Mapping[str, _NodeGpus],
    by_id: Mapping[str, Gpu],
) -> tuple[tuple[PlannedTask, ...], list[str], list[str]]:
    """The tasks, what they do not get, and why they get these CPUs."""
    placed = {}
    for node, seats in tasks_by_node(cluster.jobs).items():
        gpus = allocate_gpus(node, cluster.nodes[node], seats)
        ids = held[node].ids
        for position, (seat, taken) in enumerate(zip(seats, gpus, strict=True)):
            # Without GPUs (`--gpus none`) a node owns none, whatever it asks for.
            own = tuple(ids[gpu] for gpu in taken) if ids else ()
            _check_slices(seat.job, seat.index, own)
            placed[seat.job, seat.index] = PlannedTask(
                seat.job,
                seat.index,
                node,
                cluster.port + position,
                own,
                shares_gpus=seat.share and bool(own),
                gpu_memory_fraction=seat.gpu_memory_fraction if own else None,
            )
    order = [(job, index) for job in cluster.jobs for index in range(len(cluster.jobs[job].on))]
    tasks = [placed[key] for key in order]
    shares, shortfalls = allocate_cpus(
        [task.node for task in tasks],
        cluster.nodes,
        _cpu_ids(inventory),
        inventory.memory_bytes,
        [_near(task.gpus, by_id) for task in tasks],
    )
    limited = tuple(
        replace(task, cpus=share.cpus, cpuset=share.cpuset, memory_bytes=share.memory_bytes)
        for task, share in zip(tasks, shares, strict=True)
    )
    reasons = [f"{task.name}: {share.why}" for task, share in zip(tasks, shares, strict=True)]
    return limited, shortfalls, reasons


def _cpu_ids(inventory: Inventory) -> Sequence[int] | None:
    if inventory.cpu_ids:
        return inventory.cpu_ids
    return None if inventory.cpus is None else range(inventory.cpus)


def _near(ids: Iterable[str], by_id: Mapping[str, Gpu]) -> CloseCpus:
    return tuple(by_id[each].cpus if each in by_id else () for each in ids)


def _check_slices(job: str, index: int, ids: Sequence[str]) -> None:
    """See that CUDA will show a task all of its cards.

    With one MIG slice among them it shows that one and nothing else (NVIDIA Multi-Instance GPU
    User Guide, "CUDA Device Enumeration").
    """
    slices = sum(each.startswith(SLICE) for each in ids)
    if not slices or len(ids) == 1:
        return
    whole = len(ids) - slices
    parts = [f"{slices} MIG slice{'s'[: slices > 1]}", *([counted(whole, "GPU")] if whole else [])]
    raise InputError(
        f"jobs.{job}.on.{index}: {job}-{index} would get {' and '.join(parts)}, and CUDA shows a"
        " process that has a MIG slice nothing beside that one",
        "give every task one slice (`gpus: 1` in its job, as many pins on the node as tasks), or"
        " whole cards only",
    )


def _gpus_by_node(cluster: Cluster, inventory: Inventory) -> dict[str, _NodeGpus]:
    """The cards of each node."""
    if inventory.mode == "none":
        return dict.fromkeys(cluster.nodes, _NodeGpus())
    if inventory.mode == "index" and any(_ids(node) for node in cluster.nodes.values()):
        return _pinned_elsewhere(cluster)
    # A card that is cut cannot be used as a whole, even if it stands among the others.
    cut = {gpu.slice_of for gpu in inventory.gpus if gpu.is_slice}
    whole = [gpu for gpu in inventory.gpus if not gpu.is_slice and gpu.device_id not in cut]
    _check_cut(cluster, inventory)
    _check_size(cluster, inventory, len(whole))
    by_pin: dict[int | str, Gpu] = {
        gpu.device_id: gpu for gpu in inventory.gpus if gpu.device_id not in cut
    }
    by_pin.update({gpu.index: gpu for gpu in whole})
    holders: dict[str, str] = {}
    for name, node in cluster.nodes.items():
        for pin in node.pins:
            _pin(name, pin, by_pin, holders)
    free = [gpu for gpu in whole if gpu.device_id not in holders]
    counts = {
        name: node.gpu_count
        for name, node in cluster.nodes.items()
        if node.gpu_count and not node.pins
    }
    chosen = select_gpus(counts, free, inventory.pairs)
    held = {}
    for name, node in cluster.nodes.items():
        if name in chosen:
            ids = tuple(gpu.device_id for gpu in chosen[name].gpus)
            held[name] = _NodeGpus(ids, chosen[name].why)
        else:
            held[name] = _NodeGpus(tuple(by_pin[pin].device_id for pin in node.pins), _AS_PINNED)
    return held


def _ids(node: Node) -> list[str]:
    return [pin for pin in node.pins if isinstance(pin, str)]


def _pinned_elsewhere(cluster: Cluster) -> dict[str, _NodeGpus]:
    """UUIDs of a box that is not this one: as they stand, for which index they have is unknown."""
    for name, node in cluster.nodes.items():
        if node.gpu_count and len(_ids(node)) < node.gpu_count:
            raise InputError(
                f"nodes.{name}.gpus: other nodes pin UUIDs, whose index on another box is unknown",
                "pin UUIDs everywhere, or nowhere, to use `--gpus index`",
            )
    return {name: _NodeGpus(tuple(_ids(node)), _AS_PINNED) for name, node in cluster.nodes.items()}


def _check_cut(cluster: Cluster, inventory: Inventory) -> None:
    """See that no card is pinned as a whole that is cut into MIG slices."""
    slices: dict[int | str, list[str]] = {}
    for gpu in inventory.gpus:
        if gpu.is_slice:
            for name in (gpu.index, gpu.slice_of):
                slices.setdefault(name, []).append(gpu.device_id)
    for name, node in cluster.nodes.items():
        for pin in node.pins:
            if pin in slices:
                named = short(", ".join(slices[pin]))
                raise InputError(
                    f"nodes.{name}.gpus: GPU {pin} is cut into MIG slices ({named}) and cannot be"
                    " used as a whole",
                    "pin slices by their UUIDs, or let an administrator switch MIG off"
                    " (`nvidia-smi -mig 0`)",
                )


def _pin(
    name: str, pin: int | str, by_pin: Mapping[int | str, Gpu], holders: dict[str, str]
) -> None:
    if pin not in by_pin:
        known = short(", ".join(gpu for gpu in by_pin if isinstance(gpu, str))) or "none"
        raise LabError(f"nodes.{name}.gpus: this box has no GPU {pin} (it has {known})", HINT)
    device = by_pin[pin].device_id
    if device in holders:
        raise InputError(
            f"nodes.{name}.gpus: GPU {pin} is {device}, which {holders[device]} has already",
            "give every GPU to one node only",
        )
    holders[device] = name


def _check_size(cluster: Cluster, inventory: Inventory, whole: int) -> None:
    slices = sum(1 for node in cluster.nodes.values() for pin in _ids(node) if pin[:4] == SLICE)
    needed = cluster.gpus_needed - slices
    if needed > whole:
        cut = sum(gpu.is_slice for gpu in inventory.gpus)
        also = f" and {cut} MIG slices, which are given only by UUID" if cut else ""
        has = counted(whole, "GPU") + also
        raise LabError(
            f"{cluster.name!r} needs {counted(needed, 'GPU')}, and this box has {has}", HINT
        )


def _named(ids: Sequence[str], by_id: Mapping[str, Gpu]) -> str:
    """`GPU-…, GPU-… (2, 3)`; `GPU 2, 3` where indices are all that is known."""
    names = ", ".join(short(each) for each in ids)
    if all(each.isdecimal() for each in ids):
        return f"GPU {names}"
    known = [str(by_id[each].index) for each in ids if each in by_id]
    return f"{names} ({', '.join(known)})" if known else names


def _link(spec: LinkConfig | None) -> Link | None:
    return None if spec is None else Link(spec.rate, spec.delay)
