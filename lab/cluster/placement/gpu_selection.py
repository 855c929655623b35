"""Selects the GPUs of a node that states only a number: GPUs that are close to each other.

The result is always the same for the same host.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final

from lab.cluster.gpu.values import Gpu, Pair

_PATHS: Final = ("PIX", "PXB", "PHB", "NODE")
"""The connections over PCIe within a NUMA node, the shortest first."""

_NVLINK: Final = {
    (0, 0): "no NVLink between them",
    (0, 1): "NVLink between some of them",
    (1, 1): "NVLink between them",
}
"""Whether the GPUs with the worst and the best connection of a node have NVLink → the reason."""


@dataclass(frozen=True, slots=True)
class GpuSelection:
    """The GPUs that a node gets.

    Attributes:
        gpus: The GPUs; neighbours in this order are close, since tasks take them in order.
        why: Why these GPUs, for the user.
    """

    gpus: tuple[Gpu, ...]
    why: str


def select_gpus(
    counts: Mapping[str, int], free: Sequence[Gpu], pairs: Sequence[Pair]
) -> dict[str, GpuSelection]:
    """Select GPUs for nodes that state a number.

    The largest node is first. Each takes its GPUs from one NUMA node: the one with the fewest free
    GPUs that are enough. If none has enough, it takes them from as few NUMA nodes as possible.
    Within a NUMA node it takes the closest two GPUs first, then always the GPU that is closest to
    those. NVLink is closer than PCIe, then a shorter PCIe path, then lower indices.

    Args:
        counts: Number of GPUs by node, in the config's order; `free` must have enough.
        free: The whole GPUs without a node.
        pairs: How they are connected, as far as known.

    Returns:
        The GPUs by node, in the same order.
    """
    pool = _FreeGpus(free, pairs)
    # If all GPUs are equally close, the config's order is as good as any other.
    order = counts if pool.is_alike else sorted(counts, key=lambda node: -counts[node])
    chosen = {node: pool.take(counts[node]) for node in order}
    return {node: chosen[node] for node in counts}


def select_slices(counts: Mapping[str, int], free: Iterable[Gpu]) -> dict[str, GpuSelection]:
    """Return MIG slices for each node, in the driver's order; there must be enough."""
    rest, why = iter(free), "only MIG slices are visible"
    return {node: GpuSelection(tuple(islice(rest, count)), why) for node, count in counts.items()}


class _FreeGpus:
    """The GPUs that are still free, in groups of one NUMA node.

    Attributes:
        is_alike: Whether all GPUs are equally close to each other.
    """

    def __init__(self, gpus: Sequence[Gpu], pairs: Sequence[Pair]) -> None:
        self._gpus = {gpu.index: gpu for gpu in sorted(gpus, key=lambda gpu: gpu.index)}
        self._free: dict[int | None, list[int]] = {}
        for index, gpu in self._gpus.items():
            self._free.setdefault(gpu.numa_node, []).append(index)
        self._pairs = {(pair.first, pair.second): pair for pair in pairs}
        kinds = {self._closeness(*both) for both in combinations(self._gpus, 2)}
        self.is_alike = len(self._free) <= 1 and len(kinds) <= 1

    def take(self, count: int) -> GpuSelection:
        """Select `count` GPUs and remove them from the free ones."""
        most = max(map(len, self._free.values()))
        taken: list[int] = []
        while len(taken) < count:
            free = self._group(count - len(taken))
            closest = self._closest(free, min(count - len(taken), len(free)))
            taken += closest
            free[:] = [index for index in free if index not in closest]
        why = self._why(taken, f"no NUMA node had {count} free; the most was {most}")
        return GpuSelection(tuple(self._gpus[index] for index in taken), why)

    def _group(self, count: int) -> list[int]:
        """Return the NUMA node's GPUs that are enough with the fewest, or else the most GPUs."""
        groups = [free for free in self._free.values() if free]
        enough = [free for free in groups if len(free) >= count]
        return min(enough, key=len) if enough else max(groups, key=len)

    def _closest(self, free: Sequence[int], count: int) -> list[int]:
        """Return GPUs of one NUMA node that are close to each other."""
        if self.is_alike or count == 1:
            return list(free[:count])
        chosen = list(max(combinations(free, 2), key=lambda both: self._closeness(*both)))
        while len(chosen) < count:
            rest = [gpu for gpu in free if gpu not in chosen]
            chosen.append(max(rest, key=lambda gpu: self._to(gpu, chosen)))
        return chosen

    def _to(self, gpu: int, others: Sequence[int]) -> tuple[int, int]:
        """Return how close a GPU is to others together."""
        closeness = [self._closeness(gpu, other) for other in others]
        return sum(links for links, _ in closeness), sum(path for _, path in closeness)

    def _closeness(self, first: int, second: int) -> tuple[int, int]:
        """Return whether two GPUs have NVLink, and their PCIe path; larger numbers are closer."""
        pair = self._pairs.get((min(first, second), max(first, second)))
        if pair is None:
            return 0, 0
        return int(pair.nvlink), len(_PATHS) - _PATHS.index(pair.path) if pair.path in _PATHS else 0

    def _why(self, gpus: Sequence[int], spread: str) -> str:
        spanned = {self._gpus[index].numa_node for index in gpus}
        nodes = sorted(spanned, key=lambda node: math.inf if node is None else node)
        if nodes == [None] and not self._pairs:
            return "the next free ones; how the GPUs are connected is unknown"
        parts = [_numa(nodes)]
        if len(nodes) > 1:
            parts.append(spread)
        if self._pairs and len(gpus) > 1:
            links = {self._closeness(*both)[0] for both in combinations(gpus, 2)}
            parts.append(_NVLINK[min(links), max(links)])
        return ", ".join(parts)


def _numa(nodes: Sequence[int | None]) -> str:
    """Return `NUMA node 0`, `NUMA nodes 0 and 1`, or `NUMA node unknown`."""
    names = ["unknown" if node is None else str(node) for node in nodes]
    return f"NUMA node {names[0]}" if len(names) == 1 else f"NUMA nodes {' and '.join(names)}"
