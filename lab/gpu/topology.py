"""Reads the topology: NUMA nodes, close CPUs, and NVLink and PCIe between GPUs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Final, TypeVar

from lab.gpu import nvml
from lab.gpu.model import Condition, Pair
from lab.gpu.nvml import DeviceQueries, Handle, Library

DEVICES: Final = Path("/sys/bus/pci/devices")

_CPU_MASKS: Final = 64
"""Room for 4,096 CPUs, 64 in each integer."""

_NODE_MASKS: Final = 16
"""Room for 1,024 NUMA nodes, the maximum of Linux."""

_THIS_NODE: Final = 0
"""NVML_AFFINITY_SCOPE_NODE: the nearest node, not the whole socket."""

_BUS_ID: Final = re.compile(r"([0-9a-f]{8})(:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")

MAX_LINKS: Final = 36
"""NVML_NVLINK_MAX_LINKS of the newest nvml.h; a GPU has at most 18 today."""

PATHS: Final[Mapping[int, str]] = {
    0: "PIX",  # on one board
    10: "PIX",  # through one PCIe switch
    20: "PXB",  # through several switches, below one host bridge
    30: "PHB",  # through a host bridge
    40: "NODE",  # between the host bridges of a NUMA node
    50: "SYS",  # between NUMA nodes
}
"""`nvmlGpuTopologyLevel_t` to the term of `nvidia-smi topo`."""

# nvmlGpuP2PCapsIndex_t; pynvml has a tuple for the first one by mistake.
_READ: Final = 0
_NVLINK: Final = 2
_OK: Final = 0
_UNKNOWN: Final = 6

# nvmlIntNvLinkDeviceType_t.
_TO_SWITCH: Final = 2
_TO_UNKNOWN: Final = 0xFF

Unknown = tuple[str, Condition]

T = TypeVar("T")
D = TypeVar("D")


@dataclass(slots=True)
class _Links:
    """The active links of a GPU: to other GPUs by bus id, and to a switch."""

    direct: Counter[str] = field(default_factory=Counter)
    switched: int = 0


def numa_node(library: Library, gpu: Handle, bus_id: str) -> int | None:
    """Return the NUMA node of a GPU.

    Not by `nvmlDeviceGetNumaNodeId`: on Grace Hopper, that is the node of the GPU's own memory,
    without CPUs; elsewhere it is not supported.

    Args:
        library: The open library.
        gpu: The GPU.
        bus_id: Its PCI bus id, as NVML writes it.

    Returns:
        The node, or None if the host has none or does not report it.

    Raises:
        NVMLError: Neither the driver nor the system reports the node.
    """
    try:
        nodes = tuple(bits_set(library.nvmlDeviceGetMemoryAffinity(gpu, _NODE_MASKS, _THIS_NODE)))
    except library.NVMLError as error:
        known, node = _node_by_system(bus_id)
        if known and nvml.condition_of(error) is not Condition.GPU_LOST:
            return node
        raise
    if len(nodes) == 1:
        return nodes[0]
    return _node_by_system(bus_id)[1]


def close_cpus(library: Library, gpu: Handle) -> tuple[int, ...]:
    """Return the CPUs that are close to a GPU, ascending."""
    return tuple(bits_set(library.nvmlDeviceGetCpuAffinity(gpu, _CPU_MASKS)))


def bits_set(masks: Iterable[int]) -> Iterator[int]:
    """Yield the numbers of the bits that are set: 64 bits in each mask, the lowest first."""
    for index, mask in enumerate(masks):
        for bit in range(int(mask).bit_length()):
            if mask >> bit & 1:
                yield 64 * index + bit


def read_pairs(
    library: Library, gpus: Mapping[int, Handle]
) -> tuple[tuple[Pair, ...], dict[int, list[Unknown]]]:
    """Read every pair of GPUs.

    Args:
        library: The open library.
        gpus: Whole GPUs by index.

    Returns:
        The pairs in order of their indices; and for each GPU with a failed query, the unknown
        fields of its pairs, and why.
    """
    if len(gpus) < 2:  # noqa: PLR2004  (a pair)
        return (), {}
    questions = {index: DeviceQueries(library) for index in gpus}

    def ask(index: int, field: str, question: Callable[[], T], default: D) -> T | D:
        return questions[index].ask(field, question, default, of_pair=True)

    bus_ids = {
        index: ask(index, "nvlinks", partial(_own_bus_id, library, gpu), "")
        for index, gpu in gpus.items()
    }
    known = {bus_id for bus_id in bus_ids.values() if bus_id}
    links = {
        index: ask(index, "nvlinks", partial(_links, library, gpu, known), _Links())
        for index, gpu in gpus.items()
    }
    pairs = []
    for first, second in combinations(sorted(gpus), 2):
        both = gpus[first], gpus[second]
        nvlinks = links[first].direct[bus_ids[second]]
        switched = min(links[first].switched, links[second].switched)
        if switched and ask(first, "nvlinks", partial(_can, library, both, _NVLINK), None):
            nvlinks += switched
        path = ask(first, "path", partial(_path, library, both), "")
        p2p = ask(first, "p2p", partial(_can, library, both, _READ), None)
        pairs.append(Pair(first, second, nvlinks, path, p2p))
    unknown = {
        index: list(dict.fromkeys(each.unknown))
        for index, each in questions.items()
        if each.unknown
    }
    return tuple(pairs), unknown


def _node_by_system(bus_id: str) -> tuple[bool, int | None]:
    """Return whether the system knows the device, and its node; None on a host without nodes."""
    # NVML writes a domain of eight digits in capitals; the system writes small letters and at
    # least four digits.
    found = _BUS_ID.fullmatch(bus_id.lower())
    if found is None:
        return False, None
    try:
        device = DEVICES / f"{int(found[1], 16):04x}{found[2]}"
        node = int((device / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False, None
    return True, node if node >= 0 else None


def _path(library: Library, both: tuple[Handle, Handle]) -> str:
    return PATHS.get(library.nvmlDeviceGetTopologyCommonAncestor(*both), "")


def _can(library: Library, both: tuple[Handle, Handle], what: int) -> bool | None:
    """Return whether two GPUs have this P2P capability; None if the driver does not know."""
    status = library.nvmlDeviceGetP2PStatus(*both, what)
    return None if status == _UNKNOWN else bool(status == _OK)


def _own_bus_id(library: Library, gpu: Handle) -> str:
    return _bus_id(library.nvmlDeviceGetPciInfo(gpu).busId)


def _links(library: Library, gpu: Handle, known: set[str]) -> _Links:
    links = _Links()
    for link in range(MAX_LINKS):
        if not _is_active(library, gpu, link):
            continue
        kind = nvml.answer_or(
            library, partial(library.nvmlDeviceGetNvLinkRemoteDeviceType, gpu, link), _TO_UNKNOWN
        )
        # Not every driver reports the address of a switch, and it is not needed.
        remote = "" if kind == _TO_SWITCH else _remote(library, gpu, link)
        # An older driver does not report the kind. Then an unknown device counts as a switch; the
        # P2P status shows whether two GPUs reach each other through it.
        if kind == _TO_SWITCH or (kind == _TO_UNKNOWN and remote not in known):
            links.switched += 1
        else:
            links.direct[remote] += 1
    return links


def _is_active(library: Library, gpu: Handle, link: int) -> bool:
    """Return whether a link is active; False for a link that the GPU does not have."""
    try:
        return bool(library.nvmlDeviceGetNvLinkState(gpu, link))
    except library.NVMLError as error:
        if (
            nvml.code_of(error) == nvml.INVALID_ARGUMENT
            or nvml.condition_of(error) in nvml.UNSUPPORTED
        ):
            return False
        raise


def _remote(library: Library, gpu: Handle, link: int) -> str:
    # In a virtual machine with one GPU, the other end is hidden.
    info = nvml.answer_or(
        library, partial(library.nvmlDeviceGetNvLinkRemotePciInfo, gpu, link), None
    )
    return "" if info is None else _bus_id(info.busId)


def _bus_id(value: str | bytes) -> str:
    return nvml.text(value).upper()
