"""Selects the GPUs of a node that states only a number: GPUs that are close to each other.

It also tries to leave close GPUs for other nodes. The result is always the same for the same host.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from lab.gpu.model import Gpu, Pair

_PATHS: Final = {"PIX": 0, "PXB": 1, "PHB": 2, "NODE": 3}
_FAR: Final = len(_PATHS)  # between NUMA nodes (SYS), or unknown
_NONE: Final[Mapping[int, int]] = {}
_MOST_SETS: Final = 1000  # maximum number of sets to compare; beyond it, a greedy search


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
    Within a NUMA node it prefers GPUs with the most NVLinks between them, then with the fewest to
    the other GPUs, then with the shortest PCIe path, then with the lowest indices.

    Args:
        counts: Number of GPUs by node, in the config's order; `free` must have enough.
        free: The whole GPUs without a node.
        pairs: How they are connected, as far as known.

    Returns:
        The GPUs by node, in the same order.
    """
    pool = _FreeGpus(free, pairs)
    # If all GPUs are equally close, the config's order is as good as any other.
    order = counts if pool.is_alike() else sorted(counts, key=lambda node: -counts[node])
    chosen = {node: pool.take(counts[node]) for node in order}
    return {node: chosen[node] for node in counts}


class _Connections:
    """The connections of free GPUs, by index."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._links: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._steps: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for pair in pairs:
            if pair.nvlinks:
                self._links[pair.first][pair.second] = pair.nvlinks
                self._links[pair.second][pair.first] = pair.nvlinks
            if pair.path in _PATHS:
                self._steps[pair.first][pair.second] = _PATHS[pair.path]
        self.strongest = max((max(ends.values()) for ends in self._links.values()), default=0)

    def links_of(self, gpu: int) -> Mapping[int, int]:
        """Return the NVLinks of a GPU, by the GPU at the other end."""
        return self._links.get(gpu, _NONE)

    def links_within(self, gpus: Iterable[int]) -> int:
        """Return the number of NVLinks between GPUs."""
        return sum(self.links_of(one).get(other, 0) for one, other in combinations(gpus, 2))

    def links_to(self, gpu: int, others: Iterable[int]) -> int:
        """Return the number of NVLinks from a GPU to others."""
        links = self.links_of(gpu)
        return sum(links.get(other, 0) for other in others)

    def steps(self, one: int, other: int) -> int:
        """Return the PCIe distance of two GPUs; a larger number is farther."""
        low, high = (one, other) if one < other else (other, one)
        return self._steps.get(low, _NONE).get(high, _FAR)


class _FreeGpus:
    """The GPUs that are still free."""

    def __init__(self, gpus: Sequence[Gpu], pairs: Sequence[Pair]) -> None:
        self._gpus = {gpu.index: gpu for gpu in gpus}
        self._numa_node = {gpu.index: gpu.numa_node for gpu in gpus}
        self._free: dict[int | None, list[int]] = {}
        for index in sorted(self._numa_node):
            self._free.setdefault(self._numa_node[index], []).append(index)
        self._is_wired = bool(pairs)
        # On a large host, nearly all pairs have the maximum distance.
        numa_node, paths = self._numa_node, _PATHS
        self._pairs = [
            pair
            for pair in pairs
            if (pair.nvlinks or pair.path in paths)
            and pair.first in numa_node
            and pair.second in numa_node
        ]
        near = [pair for pair in self._pairs if numa_node[pair.first] == numa_node[pair.second]]
        self._ties = _Connections(near)
        self._alike = self._find_alike(near)
        # NVLinks of each free GPU to the other free GPUs of its NUMA node.
        self._degree = {index: sum(self._ties.links_of(index).values()) for index in numa_node}

    def _find_alike(self, pairs: Iterable[Pair]) -> dict[int | None, bool]:
        """Find the NUMA nodes in which all pairs of GPUs have the same connection."""
        kinds: dict[int | None, Counter[tuple[int, str]]] = {node: Counter() for node in self._free}
        for pair in pairs:
            kinds[self._numa_node[pair.first]][pair.nvlinks, pair.path] += 1
        return {
            node: list(kinds[node].values()) in ([], [math.comb(len(free), 2)])
            for node, free in self._free.items()
        }

    def is_alike(self) -> bool:
        """Return whether all GPUs are equally close to each other."""
        return len(self._free) <= 1 and all(self._alike.values())

    def take(self, count: int) -> GpuSelection:
        """Select `count` GPUs and remove them from the free ones."""
        spans = all(len(free) < count for free in self._free.values())
        most = max(len(free) for free in self._free.values())
        if spans and self._pairs:  # now links between NUMA nodes count, too
            left = {gpu for gpus in self._free.values() for gpu in gpus}
            self._ties = _Connections(
                p for p in self._pairs if p.first in left and p.second in left
            )
            self._pairs = []
        taken: list[int] = []
        while len(taken) < count:
            taken += self._out_of(self._next(count - len(taken)), count - len(taken), taken)
        alike = not spans and self._alike[self._numa_node[taken[0]]]
        order = sorted(taken) if alike else self._chain(taken)
        why = self._why(taken, f"no NUMA node had {count} free, but at most {most}")
        return GpuSelection(tuple(self._gpus[index] for index in order), why)

    def _next(self, count: int) -> int | None:
        """Return the NUMA node with the fewest GPUs that are enough, or else with the most."""
        free = self._free
        fitting = [node for node, gpus in free.items() if len(gpus) >= count]
        if fitting:
            return min(fitting, key=lambda node: (len(free[node]), free[node][0]))
        return min(free, key=lambda node: (-len(free[node]), free[node][0]))

    def _out_of(self, node: int | None, count: int, base: Sequence[int]) -> Sequence[int]:
        """Take up to `count` GPUs of a NUMA node, for a node that already has `base`."""
        free = self._free[node]
        chosen: Sequence[int]
        if count >= len(free) or (self._alike[node] and not base):
            chosen = free[:count]
        elif math.comb(len(free), count) <= _MOST_SETS:
            chosen = self._best(free, count, base)
        else:
            chosen = self._greedy(free, count, base)
        gone = set(chosen)
        self._free[node] = [index for index in free if index not in gone]
        if not self._free[node]:
            del self._free[node]
        for index in chosen:
            for other, links in self._ties.links_of(index).items():
                if self._numa_node[other] == node:
                    self._degree[other] -= links
        return chosen

    def _best(self, free: Sequence[int], count: int, base: Sequence[int]) -> tuple[int, ...]:
        """Return the best of all sets; of equal sets, the one with the lowest indices."""
        ties, degree = self._ties, self._degree

        def cost(gpus: tuple[int, ...]) -> tuple[int, int, int]:
            inside = ties.links_within(gpus)
            outside = sum(degree[gpu] for gpu in gpus) - 2 * inside
            to_base = sum(ties.links_to(gpu, base) for gpu in gpus)
            steps = sum(ties.steps(*both) for both in combinations((*base, *gpus), 2))
            return -inside - to_base, outside, steps

        return min(combinations(free, count), key=cost)

    def _greedy(self, free: Sequence[int], count: int, base: Sequence[int]) -> list[int]:
        """Return a good set by a greedy search: add the GPU that is closest to the chosen ones."""
        ties, degree = self._ties, self._degree
        links = dict.fromkeys(free, 0)
        if base:
            links = {gpu: ties.links_to(gpu, base) for gpu in free}

        def first_key(gpu: int) -> tuple[int, int, int]:
            """Return the sort key of the first GPU: the most possible links are best."""
            most = min(degree[gpu], ties.strongest * (count - 1))
            return -links[gpu] - most, degree[gpu], gpu

        def next_key(gpu: int) -> tuple[int, int, int, int]:
            steps = sum(ties.steps(gpu, other) for other in (*base, *chosen))
            return -links[gpu], degree[gpu], steps, gpu

        chosen = [min(free, key=first_key)]
        while len(chosen) < count:
            links.pop(chosen[-1])
            for other, number in ties.links_of(chosen[-1]).items():
                if other in links:
                    links[other] += number
            linked = [other for other, number in links.items() if number]
            chosen.append(min(linked or links, key=next_key))
        return sorted(chosen)

    def _chain(self, gpus: Sequence[int]) -> list[int]:
        """Return GPUs from the lowest index on, each followed by the closest other GPU."""
        ties, numa_node = self._ties, self._numa_node
        chain = [min(gpus)]
        rest = set(gpus) - set(chain)

        def next_key(gpu: int) -> tuple[int, bool, int, int]:
            last = chain[-1]
            apart = numa_node[gpu] != numa_node[last]
            return -ties.links_of(last).get(gpu, 0), apart, ties.steps(last, gpu), gpu

        while rest:
            linked = rest.intersection(ties.links_of(chain[-1]))
            following = min(linked or rest, key=next_key)
            rest.remove(following)
            chain.append(following)
        return chain

    def _why(self, gpus: Sequence[int], spread: str) -> str:
        spanned = {self._numa_node[gpu] for gpu in gpus}
        nodes = sorted(spanned, key=lambda node: math.inf if node is None else node)
        links = self._ties.links_within(gpus)
        if nodes == [None] and not self._is_wired:
            return "the next free ones; how the GPUs are connected is unknown"
        parts = [_numa(nodes)]
        if len(nodes) > 1:
            parts.append(spread)
        if self._is_wired and len(gpus) > 1:
            parts.append(f"{_nvlinks(links)} between them")
        return ", ".join(parts)


def _numa(nodes: Sequence[int | None]) -> str:
    """Return `NUMA node 0`, `NUMA nodes 0 and 1`, or `NUMA node unknown`."""
    names = ["an unknown one" if node is None else str(node) for node in nodes]
    if len(names) > 1:
        return f"NUMA nodes {', '.join(names[:-1])} and {names[-1]}"
    return "NUMA node unknown" if nodes == [None] else f"NUMA node {names[0]}"


def _nvlinks(count: int) -> str:
    return {0: "no NVLink", 1: "1 NVLink"}.get(count, f"{count} NVLinks")
