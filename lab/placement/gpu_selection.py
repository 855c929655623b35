"""Which cards a node gets that only says how many: close ones, and so that close ones are left.

Pure arithmetic, and the same for the same box: what one node gets never depends on chance.
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
_FAR: Final = len(_PATHS)  # from one NUMA node to another (SYS), or not known
_NONE: Final[Mapping[int, int]] = {}
_MOST_SETS: Final = 1000  # so many sets of cards are compared; where there are more, one is grown


@dataclass(frozen=True, slots=True)
class GpuSelection:
    """The cards that a node gets.

    Attributes:
        gpus: In an order in which neighbours are close, since tasks take them in order.
        why: Why these, for a person.
    """

    gpus: tuple[Gpu, ...]
    why: str


def select_gpus(
    counts: Mapping[str, int], free: Sequence[Gpu], pairs: Sequence[Pair]
) -> dict[str, GpuSelection]:
    """Choose cards for nodes that state how many they want.

    The largest node chooses first. Each takes its cards from one NUMA node, of those that suffice
    from the one with the fewest free cards, and only where none suffices from as few as possible.
    Within a NUMA node it takes those with the most NVLinks between them, then with the fewest to
    cards that are left, then with the shortest way over PCIe, then with the lowest indices.

    Args:
        counts: Cards by node, in the description's order; together no more than there are free.
        free: The whole cards that no node has.
        pairs: How they are connected, as far as it is known.

    Returns:
        The cards by node, in the same order.
    """
    box = _FreeGpus(free, pairs)
    # Where all cards are alike nothing is gained by another order than the one that is expected.
    order = counts if box.is_alike() else sorted(counts, key=lambda node: -counts[node])
    chosen = {node: box.take(counts[node]) for node in order}
    return {node: chosen[node] for node in counts}


class _Connections:
    """What connects cards that are free, by their indices."""

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
        """NVLinks of a card, by the card at the other end."""
        return self._links.get(gpu, _NONE)

    def links_within(self, gpus: Iterable[int]) -> int:
        """NVLinks between cards."""
        return sum(self.links_of(one).get(other, 0) for one, other in combinations(gpus, 2))

    def links_to(self, gpu: int, others: Iterable[int]) -> int:
        """NVLinks from a card to others."""
        links = self.links_of(gpu)
        return sum(links.get(other, 0) for other in others)

    def steps(self, one: int, other: int) -> int:
        """How long the way over PCIe is; the larger, the longer."""
        low, high = (one, other) if one < other else (other, one)
        return self._steps.get(low, _NONE).get(high, _FAR)


class _FreeGpus:
    """The cards that are still free."""

    def __init__(self, gpus: Sequence[Gpu], pairs: Sequence[Pair]) -> None:
        self._gpus = {gpu.index: gpu for gpu in gpus}
        self._numa_node = {gpu.index: gpu.numa_node for gpu in gpus}
        self._free: dict[int | None, list[int]] = {}
        for index in sorted(self._numa_node):
            self._free.setdefault(self._numa_node[index], []).append(index)
        self._is_wired = bool(pairs)
        # On a large box nearly all pairs are of cards that are as far from each other as can be.
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
        # NVLinks of each free card to the other free ones of its NUMA node.
        self._degree = {index: sum(self._ties.links_of(index).values()) for index in numa_node}

    def _find_alike(self, pairs: Iterable[Pair]) -> dict[int | None, bool]:
        """NUMA nodes in which every card is connected with every other in the same way."""
        kinds: dict[int | None, Counter[tuple[int, str]]] = {node: Counter() for node in self._free}
        for pair in pairs:
            kinds[self._numa_node[pair.first]][pair.nvlinks, pair.path] += 1
        return {
            node: list(kinds[node].values()) in ([], [math.comb(len(free), 2)])
            for node, free in self._free.items()
        }

    def is_alike(self) -> bool:
        """Whether no card is closer to another than all are."""
        return len(self._free) <= 1 and all(self._alike.values())

    def take(self, count: int) -> GpuSelection:
        """Take so many cards away."""
        spans = all(len(free) < count for free in self._free.values())
        most = max(len(free) for free in self._free.values())
        if spans and self._pairs:  # from here on, links between NUMA nodes count, too
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
        why = self._why(taken, f"no NUMA node had {count} free, {most} at most")
        return GpuSelection(tuple(self._gpus[index] for index in order), why)

    def _next(self, count: int) -> int | None:
        """The NUMA node with the fewest cards that suffice; where none does, with the most."""
        free = self._free
        fitting = [node for node, gpus in free.items() if len(gpus) >= count]
        if fitting:
            return min(fitting, key=lambda node: (len(free[node]), free[node][0]))
        return min(free, key=lambda node: (-len(free[node]), free[node][0]))

    def _out_of(self, node: int | None, count: int, base: Sequence[int]) -> Sequence[int]:
        """Take up to so many cards of a NUMA node, for a node that has others (`base`) already."""
        free = self._free[node]
        chosen: Sequence[int]
        if count >= len(free) or (self._alike[node] and not base):
            chosen = free[:count]
        elif math.comb(len(free), count) <= _MOST_SETS:
            chosen = self._best(free, count, base)
        else:
            chosen = self._grown(free, count, base)
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
        """The best of all sets; of equally good ones the one with the lowest indices."""
        ties, degree = self._ties, self._degree

        def price(gpus: tuple[int, ...]) -> tuple[int, int, int]:
            inside = ties.links_within(gpus)
            outside = sum(degree[gpu] for gpu in gpus) - 2 * inside
            to_base = sum(ties.links_to(gpu, base) for gpu in gpus)
            steps = sum(ties.steps(*both) for both in combinations((*base, *gpus), 2))
            return -inside - to_base, outside, steps

        return min(combinations(free, count), key=price)

    def _grown(self, free: Sequence[int], count: int, base: Sequence[int]) -> list[int]:
        """A good set where there are too many: card by card, each the closest to those before."""
        ties, degree = self._ties, self._degree
        links = dict.fromkeys(free, 0)
        if base:
            links = {gpu: ties.links_to(gpu, base) for gpu in free}

        def promise(gpu: int) -> tuple[int, int, int]:
            """What it can bring along, at most, comes first."""
            most = min(degree[gpu], ties.strongest * (count - 1))
            return -links[gpu] - most, degree[gpu], gpu

        def distance(gpu: int) -> tuple[int, int, int, int]:
            steps = sum(ties.steps(gpu, other) for other in (*base, *chosen))
            return -links[gpu], degree[gpu], steps, gpu

        chosen = [min(free, key=promise)]
        while len(chosen) < count:
            links.pop(chosen[-1])
            for other, number in ties.links_of(chosen[-1]).items():
                if other in links:
                    links[other] += number
            linked = [other for other, number in links.items() if number]
            chosen.append(min(linked or links, key=distance))
        return sorted(chosen)

    def _chain(self, gpus: Sequence[int]) -> list[int]:
        """Cards from the lowest index on, each followed by the closest of the others."""
        ties, numa_node = self._ties, self._numa_node
        chain = [min(gpus)]
        rest = set(gpus) - set(chain)

        def distance(gpu: int) -> tuple[int, bool, int, int]:
            last = chain[-1]
            apart = numa_node[gpu] != numa_node[last]
            return -ties.links_of(last).get(gpu, 0), apart, ties.steps(last, gpu), gpu

        while rest:
            linked = rest.intersection(ties.links_of(chain[-1]))
            following = min(linked or rest, key=distance)
            rest.remove(following)
            chain.append(following)
        return chain

    def _why(self, gpus: Sequence[int], spread: str) -> str:
        spanned = {self._numa_node[gpu] for gpu in gpus}
        nodes = sorted(spanned, key=lambda node: math.inf if node is None else node)
        links = self._ties.links_within(gpus)
        if nodes == [None] and not self._is_wired:
            return "the next free ones; nothing is known of how the cards are connected"
        arguments = [_numa(nodes)]
        if len(nodes) > 1:
            arguments.append(spread)
        if self._is_wired and len(gpus) > 1:
            arguments.append(f"{_nvlinks(links)} between them")
        return ", ".join(arguments)


def _numa(nodes: Sequence[int | None]) -> str:
    """`NUMA node 0`, `NUMA nodes 0 and 1`, `NUMA node not known`."""
    names = ["one not known" if node is None else str(node) for node in nodes]
    if len(names) > 1:
        return f"NUMA nodes {', '.join(names[:-1])} and {names[-1]}"
    return "NUMA node not known" if nodes == [None] else f"NUMA node {names[0]}"


def _nvlinks(count: int) -> str:
    return {0: "no NVLink", 1: "1 NVLink"}.get(count, f"{count} NVLinks")
