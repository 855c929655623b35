"""Where in the box a card hangs: its NUMA node, and the CPUs that are close to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from lab.gpu.model import Condition
from lab.gpu.nvml import Handle, Library
from lab.gpu.nvml_errors import condition_of

DEVICES: Final = Path("/sys/bus/pci/devices")

_CPU_WORDS: Final = 64
"""Room for 4,096 CPUs, 64 in a word."""

_NODE_WORDS: Final = 16
"""Room for 1,024 NUMA nodes, as many as Linux knows."""

_THIS_NODE: Final = 0
"""NVML_AFFINITY_SCOPE_NODE: the nearest node, not all of its socket."""

_BUS_ID: Final = re.compile(r"([0-9a-f]{8})(:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


def numa_node(library: Library, card: Handle, bus_id: str) -> int | None:
    """The NUMA node that a card hangs on.

    Not `nvmlDeviceGetNumaNodeId`: that is the node which the card's own memory makes up on Grace
    Hopper, where no CPU is; elsewhere it is not supported.

    Args:
        library: The open library.
        card: The card.
        bus_id: Its PCI bus id, as NVML writes it.

    Returns:
        The node, or None where the box has none or does not tell.

    Raises:
        NVMLError: The driver does not know, and the system does not either.
    """
    try:
        nodes = tuple(members(library.nvmlDeviceGetMemoryAffinity(card, _NODE_WORDS, _THIS_NODE)))
    except library.NVMLError as error:
        known, node = _node_by_system(bus_id)
        if known and condition_of(error) is not Condition.CARD_LOST:
            return node
        raise
    if len(nodes) == 1:
        return nodes[0]
    return _node_by_system(bus_id)[1]


def near_cpus(library: Library, card: Handle) -> tuple[int, ...]:
    """The CPUs that are close to a card, ascending."""
    return tuple(members(library.nvmlDeviceGetCpuAffinity(card, _CPU_WORDS)))


def members(words: Iterable[int]) -> Iterator[int]:
    """What is in a set that NVML writes as bits: 64 in each word, the lowest first."""
    for place, word in enumerate(words):
        for bit in range(int(word).bit_length()):
            if word >> bit & 1:
                yield 64 * place + bit


def _node_by_system(bus_id: str) -> tuple[bool, int | None]:
    """Whether the system knows the device, and its node; None where the box has no nodes."""
    # NVML writes a domain of eight digits in capitals; the system writes small letters, and zeros
    # before the number only up to four digits.
    found = _BUS_ID.fullmatch(bus_id.lower())
    if found is None:
        return False, None
    try:
        device = DEVICES / f"{int(found[1], 16):04x}{found[2]}"
        node = int((device / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False, None
    return True, node if node >= 0 else None
