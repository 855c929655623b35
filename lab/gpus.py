"""What the box has: its GPUs, CPUs and memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card, or one MIG slice of a card.

    Attributes:
        index: NVML's index, in PCI bus order; it may change when the box is started anew.
        device_id: What pins it: its UUID, or its index as text where no UUID is known.
        name: The card's product name, or "" where it is not known.
        memory_bytes: Its memory, or 0 where it is not known.
    """

    index: int
    device_id: str
    name: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Inventory:
    """The box that a plan is made for.

    Attributes:
        mode: How cards are pinned: `uuid`, `index` or `none`.
        gpus: The cards, in order of their index.
        cpus: Number of CPUs, or None for a box that is not this one.
        memory_bytes: Main memory, or None for a box that is not this one.
        notices: One line each, for the user.
    """

    mode: str
    gpus: tuple[Gpu, ...]
    cpus: int | None
    memory_bytes: int | None
    notices: tuple[str, ...] = ()
