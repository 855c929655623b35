"""The arithmetic of a plan: which GPU of the box becomes whose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from lab.cluster import Cluster, LinkSpec, Node
from lab.cluster.dealing import deal, gpus, seats_by_node
from lab.cpus import share_out
from lab.errors import InputError, LabError
from lab.gpus import Gpu, Inventory
from lab.plan import Link, Plan, PlannedNode, PlannedTask

WAYS_OUT = (
    "choose a description of `clusters/` that fits, or `--gpus index` to render for another box, "
    "or `--gpus none` for CPUs only"
)


def place(cluster: Cluster, inventory: Inventory) -> Plan:
    """See `lab.plan.place`."""
    owned = _owned(cluster, inventory)
    nodes = tuple(
        PlannedNode(name, owned[name], _link(cluster.links.get(name))) for name in cluster.nodes
    )
    tasks, notices = _tasks(cluster, inventory, owned)
    return Plan(
        name=cluster.name,
        mode=inventory.mode,
        cluster_sha256=cluster.sha256,
        nodes=nodes,
        tasks=tasks,
        notices=(*inventory.notices, *notices),
    )


def _tasks(
    cluster: Cluster, inventory: Inventory, owned: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[PlannedTask, ...], list[str]]:
    placed: dict[tuple[str, int], tuple[str, int, tuple[str, ...]]] = {}
    for node, seats in seats_by_node(cluster.jobs).items():
        cards = deal(node, cluster.nodes[node], seats).cards
        for position, (seat, taken) in enumerate(zip(seats, cards, strict=True)):
            # Without GPUs (`--gpus none`) a node owns none, whatever it asks for.
            ids = tuple(owned[node][card] for card in taken) if owned[node] else ()
            placed[seat.job, seat.index] = (node, cluster.port + position, ids)
    order = [(job, index) for job in cluster.jobs for index in range(len(cluster.jobs[job].on))]
    homes = [placed[key][0] for key in order]
    shares, notices = share_out(homes, cluster.nodes, inventory.cpus, inventory.memory_bytes)
    tasks = []
    for (name, index), share in zip(order, shares, strict=True):
        job = cluster.jobs[name]
        node, port, ids = placed[name, index]
        task = PlannedTask(
            job=name,
            index=index,
            node=node,
            port=port,
            gpus=ids,
            shares_gpus=job.share and bool(ids),
            gpu_memory_fraction=job.gpu_memory_fraction if ids else None,
            cpus=share.cpus,
            cpuset=share.cpuset,
            memory_bytes=share.memory_bytes,
        )
        tasks.append(task)
    return tuple(tasks), notices


def _owned(cluster: Cluster, inventory: Inventory) -> dict[str, tuple[str, ...]]:
    """The device ids of each node."""
    if inventory.mode == "none":
        return dict.fromkeys(cluster.nodes, ())
    if inventory.mode == "index" and any(_ids(node) for node in cluster.nodes.values()):
        return _pinned_elsewhere(cluster)
    whole = [gpu for gpu in inventory.gpus if not gpu.is_slice]
    _check_size(cluster, inventory, len(whole))
    by_pin: dict[int | str, Gpu] = {gpu.device_id: gpu for gpu in inventory.gpus}
    by_pin.update({gpu.index: gpu for gpu in whole})
    holders: dict[str, str] = {}
    for name, node in cluster.nodes.items():
        for pin in node.pins:
            _pin(name, pin, by_pin, holders)
    free = (gpu.device_id for gpu in whole if gpu.device_id not in holders)
    return {
        name: tuple(by_pin[pin].device_id for pin in node.pins)
        or tuple(_next(free, node.gpu_count, cluster, len(whole)))
        for name, node in cluster.nodes.items()
    }


def _ids(node: Node) -> list[str]:
    return [pin for pin in node.pins if isinstance(pin, str)]


def _pinned_elsewhere(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """UUIDs of a box that is not this one: as they stand, for which index they have is unknown."""
    for name, node in cluster.nodes.items():
        if node.gpu_count and len(_ids(node)) < node.gpu_count:
            raise InputError(
                f"nodes.{name}.gpus: other nodes pin UUIDs, whose index on another box is unknown",
                "pin UUIDs everywhere, or nowhere, to use `--gpus index`",
            )
    return {name: tuple(_ids(node)) for name, node in cluster.nodes.items()}


def _pin(
    name: str, pin: int | str, by_pin: Mapping[int | str, Gpu], holders: dict[str, str]
) -> None:
    if pin not in by_pin:
        known = ", ".join(gpu for gpu in by_pin if isinstance(gpu, str)) or "none"
        raise LabError(f"nodes.{name}.gpus: this box has no GPU {pin} (it has {known})", WAYS_OUT)
    device = by_pin[pin].device_id
    if device in holders:
        raise InputError(
            f"nodes.{name}.gpus: GPU {pin} is {device}, which {holders[device]} has already",
            "give every GPU to one node only",
        )
    holders[device] = name


def _check_size(cluster: Cluster, inventory: Inventory, whole: int) -> None:
    slices = sum(1 for node in cluster.nodes.values() for pin in _ids(node) if pin[:4] == "MIG-")
    needed = cluster.gpus_needed - slices
    if needed > whole:
        cut = len(inventory.gpus) - whole
        also = f" and {cut} MIG slices, which are given only by UUID" if cut else ""
        raise _too_small(cluster, needed, f"{gpus(whole)}{also}")


def _too_small(cluster: Cluster, needed: int, have: str) -> LabError:
    return LabError(f"{cluster.name!r} needs {gpus(needed)}, and this box has {have}", WAYS_OUT)


def _next(free: Iterator[str], count: int, cluster: Cluster, whole: int) -> list[str]:
    taken = list(islice(free, count))
    if len(taken) < count:
        raise _too_small(cluster, cluster.gpus_needed, gpus(whole))
    return taken


def _link(spec: LinkSpec | None) -> Link | None:
    return None if spec is None else Link(spec.rate, spec.delay)
