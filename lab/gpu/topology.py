"""Reads the topology: NUMA nodes, close CPUs, and the connections between two GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import combinations
from typing import Final

from lab.gpu.model import Condition, Pair
from lab.gpu.nvml import Handle, Library, answer_or

_CPU_MASKS: Final = 64
"""Room for 4,096 CPUs, 64 in each integer."""

_NODE_MASKS: Final = 16
"""Room for 1,024 NUMA nodes, the maximum of Linux."""

_THIS_NODE: Final = 0
"""NVML_AFFINITY_SCOPE_NODE: the nearest node, not the whole socket."""

PATHS: Final[Mapping[int, str]] = {
    0: "PIX",  # on one board
    10: "PIX",  # through one PCIe switch
    20: "PXB",  # through several switches, below one host bridge
    30: "PHB",  # through a host bridge
    40: "NODE",  # between the host bridges of a NUMA node
    50: "SYS",  # between NUMA nodes
}
"""`nvmlGpuTopologyLevel_t` to the term of `nvidia-smi topo`."""

_NVLINK: Final = 2
"""NVML_P2P_CAPS_INDEX_NVLINK, of `nvmlGpuP2PCapsIndex_t`."""

_OK: Final = 0


def numa_node(library: Library, gpu: Handle) -> int | None:
    """Return the NUMA node of a GPU, or None if it has no single one.

    Not by `nvmlDeviceGetNumaNodeId`: on Grace Hopper, that is the node of the GPU's own memory,
    without CPUs; elsewhere it is not supported.
    """
    nodes = tuple(bits_set(library.nvmlDeviceGetMemoryAffinity(gpu, _NODE_MASKS, _THIS_NODE)))
    return nodes[0] if len(nodes) == 1 else None


def close_cpus(library: Library, gpu: Handle) -> tuple[int, ...]:
    """Return the CPUs that are close to a GPU, ascending."""
    return tuple(bits_set(library.nvmlDeviceGetCpuAffinity(gpu, _CPU_MASKS)))


def bits_set(masks: Iterable[int]) -> Iterator[int]:
    """Yield the numbers of the bits that are set: 64 bits in each mask, the lowest first."""
    for index, mask in enumerate(masks):
        for bit in range(int(mask).bit_length()):
            if mask >> bit & 1:
                yield 64 * index + bit


def read_pairs(library: Library, gpus: Mapping[int, Handle]) -> tuple[Pair, ...]:
    """Read how every two GPUs are connected; without an answer, the connection is unknown.

    Args:
        library: The open library.
        gpus: Whole GPUs by index.
    """
    # One of the two may be lost.
    ask = partial(answer_or, library, conditions=frozenset(Condition))
    pairs = []
    for first, second in combinations(sorted(gpus), 2):
        handles = gpus[first], gpus[second]
        nvlink = ask(partial(_has_nvlink, library, handles), default=False)
        path = ask(partial(_path, library, handles), default="")
        pairs.append(Pair(first, second, nvlink, path))
    return tuple(pairs)


def _has_nvlink(library: Library, handles: tuple[Handle, Handle]) -> bool:
    """Return whether two GPUs reach each other by NVLink, directly or through a switch."""
    return bool(library.nvmlDeviceGetP2PStatus(*handles, _NVLINK) == _OK)


def _path(library: Library, handles: tuple[Handle, Handle]) -> str:
    return PATHS.get(library.nvmlDeviceGetTopologyCommonAncestor(*handles), "")
