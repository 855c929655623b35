"""The boxes that golden files are rendered for; no real one, so that every machine agrees."""

from __future__ import annotations

from lab.cluster import Cluster
from lab.gpus import Gpu, Inventory, take_inventory
from lab.sizes import GIB

MODES = ("uuid", "index", "none")


def uuid_of(index: int) -> str:
    """The UUID of a card of the box."""
    return f"GPU-{index:08x}-1111-2222-3333-444444444444"


def mig_of(index: int) -> str:
    """The UUID of a MIG slice of the box."""
    return f"MIG-{index:08x}-5555-6666-7777-888888888888"


def box(
    gpus: int = 8, *, slices: int = 0, cpus: int = 64, memory_bytes: int = 512 * GIB
) -> Inventory:
    """A box whose driver answers: so many whole cards, and one more cut into so many slices."""
    cards = [Gpu(index, uuid_of(index), "Card", 80 * GIB) for index in range(gpus)]
    cards += [Gpu(gpus, mig_of(index), "Slice", 10 * GIB) for index in range(slices)]
    return Inventory("uuid", tuple(cards), cpus, memory_bytes)


def inventory(mode: str, cluster: Cluster) -> Inventory:
    """The box for one way of pinning."""
    if mode == "uuid":
        return box(slices=7)
    if mode == "none":
        return Inventory("none", (), 4, 16 * GIB)
    return take_inventory("index", cluster)
