"""The boxes that golden files are rendered for; no real one, so that every machine agrees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from lab.base.units import GIB
from lab.cluster.config import Cluster
from lab.cluster.gpu import Gpu, Inventory, Pair, take_inventory

MODES = ("index", "uuid", "none")
"""The first one's golden files are whole; the others' say how they differ from it."""


def uuid_of(index: int) -> str:
    return f"GPU-{index:08x}-1111-2222-3333-444444444444"


def mig_of(index: int) -> str:
    return f"MIG-{index:08x}-5555-6666-7777-888888888888"


def box(
    gpus: int = 8, *, slices: int = 0, cpus: int = 64, memory_bytes: int = 512 * GIB
) -> Inventory:
    """A box whose driver answers: so many whole cards, and one more cut into so many slices."""
    cards = [Gpu(index, uuid_of(index), "Card", 80 * GIB) for index in range(gpus)]
    parent = uuid_of(gpus)
    cards += [
        Gpu(gpus, mig_of(index), "Slice", 10 * GIB, slice_of=parent) for index in range(slices)
    ]
    return Inventory("uuid", tuple(cards), cpus, memory_bytes)


def wired(
    numa: Sequence[int | None],
    links: Iterable[tuple[int, int]] = (),
    *,
    paths: Mapping[tuple[int, int], str] | None = None,
    affinity: Mapping[int, Sequence[int]] | None = None,
    cpus: int = 64,
) -> Inventory:
    """A box whose driver tells how its whole cards are connected.

    Args:
        numa: The NUMA node of each card.
        links: The pairs of cards with NVLink, the lower index first.
        paths: The way over PCIe by pair, likewise; by default it is not known.
        affinity: CPUs by NUMA node; by default they are not known.
        cpus: How many CPUs it has.
    """
    links, paths, affinity = set(links), paths or {}, affinity or {}
    cards = [
        Gpu(
            index,
            uuid_of(index),
            "Card",
            80 * GIB,
            numa_node=node,
            cpus=() if node is None else tuple(affinity.get(node, ())),
        )
        for index, node in enumerate(numa)
    ]
    pairs = [
        Pair(first, second, (first, second) in links, paths.get((first, second), ""))
        for first, second in combinations(range(len(numa)), 2)
    ]
    return Inventory("uuid", tuple(cards), cpus, 512 * GIB, pairs=tuple(pairs))


def inventory(mode: str, cluster: Cluster) -> Inventory:
    """The box for one way of pinning."""
    if mode == "uuid":
        return box(slices=7)
    if mode == "none":
        return Inventory("none", (), 4, 16 * GIB)
    return take_inventory("index", cluster)
