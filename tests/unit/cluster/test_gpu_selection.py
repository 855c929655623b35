"""Which GPUs a node gets when its config has only a number."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.cluster.gpu import Inventory, Pair
from lab.cluster.placement.gpu_selection import select_gpus
from tests.golden.boxes import wired

HALVES = (0, 0, 0, 0, 1, 1, 1, 1)
PIECES = [(0, 2), (1, 3), (4, 6), (5, 7)]
ALIKE = wired((0,) * 8, combinations(range(8), 2))
NEAR = {**dict.fromkeys(combinations(range(4), 2), "NODE"), (0, 3): "PIX", (1, 2): "PXB"}


def explained(
    host: Inventory, *counts: int, without: tuple[int, ...] = ()
) -> list[tuple[list[int], str]]:
    """The indices that nodes with these counts get, with the reasons."""
    free = [gpu for gpu in host.gpus if gpu.index not in without]
    wishes = {f"tf{position}": count for position, count in enumerate(counts)}
    choices = select_gpus(wishes, free, host.pairs)
    assert list(choices) == list(wishes)
    return [([gpu.index for gpu in each.gpus], each.why) for each in choices.values()]


def chosen(host: Inventory, *counts: int, without: tuple[int, ...] = ()) -> list[list[int]]:
    return [gpus for gpus, _ in explained(host, *counts, without=without)]


@pytest.mark.parametrize(
    ("host", "counts", "without", "expected"),
    [
        # A node stays in one NUMA node.
        (wired(HALVES), (2, 2, 2, 2), (), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        # In the config's order, 1 + 1 + 3 would span.
        (wired(HALVES), (1, 1, 3, 3), (), [[3], [7], [0, 1, 2], [4, 5, 6]]),
        # Two GPUs fit into the rest of the three, so that the other half stays whole.
        (wired(HALVES), (3, 1), (), [[0, 1, 2], [3]]),
        # The smallest one that suffices is used.
        (wired((0, 0, 0, 1, 1, 2, 2)), (2, 1), (), [[3, 4], [5]]),
        # It spans as few as possible: 3 + 2 and no third one.
        (wired((0, 0, 1, 2, 2, 2, 3, 3)), (5,), (), [[3, 4, 5, 0, 1]]),
        # Pinned GPUs are not selected.
        (wired(HALVES), (2, 4), (0, 1), [[2, 3], [4, 5, 6, 7]]),
        (wired(HALVES), (3,), (0, 1), [[4, 5, 6]]),
        # GPUs without a NUMA node are one group.
        (wired((None, 0, None, 0, None)), (3, 2), (), [[0, 2, 4], [1, 3]]),
        # Linked GPUs stay together.
        (wired(HALVES, PIECES), (2, 2, 2, 2), (), [[0, 2], [1, 3], [4, 6], [5, 7]]),
        (wired((0,) * 5, [(0, 2), (1, 3)]), (2, 1, 2), (), [[0, 2], [4], [1, 3]]),
        # Tasks get neighbours, because linked GPUs are adjacent.
        (wired(HALVES, PIECES), (8,), (), [[0, 2, 1, 3, 4, 6, 5, 7]]),
        # Without links the PCIe distance decides.
        (wired((0,) * 4, paths=NEAR), (2, 2), (), [[0, 3], [1, 2]]),
        # Equal GPUs keep the config's order.
        (wired((None,) * 8), (1, 3, 4), (), [[0], [1, 2, 3], [4, 5, 6, 7]]),
        (ALIKE, (1, 3, 4), (), [[0], [1, 2, 3], [4, 5, 6, 7]]),
    ],
)
def test_gpus_that_are_close_are_selected(
    host: Inventory, counts: tuple[int, ...], without: tuple[int, ...], expected: list[list[int]]
) -> None:
    assert chosen(host, *counts, without=without) == expected


SPANNING = "NUMA nodes 0 and {}, no NUMA node had {} free; the most was {}, no NVLink between them"
UNCONNECTED = Inventory("index", wired((None,) * 4).gpus, None, None)


@pytest.mark.parametrize(
    ("host", "counts", "why"),
    [
        (wired(HALVES), (3, 3, 2), SPANNING.format(1, 2, 1)),
        (wired((None, 0, None)), (3,), SPANNING.format("unknown", 3, 2)),
        (wired(HALVES, PIECES), (2,), "NUMA node 0, NVLink between them"),
        (ALIKE, (4,), "NUMA node 0, NVLink between them"),
        (wired((0,) * 3, [(0, 1)]), (3,), "NUMA node 0, NVLink between some of them"),
        (UNCONNECTED, (2,), "the next free ones; how the GPUs are connected is unknown"),
    ],
)
def test_the_reason_of_the_last(host: Inventory, counts: tuple[int, ...], why: str) -> None:
    assert explained(host, *counts)[-1][1] == why


def test_pairs_of_missing_gpus_change_nothing() -> None:
    host = wired((0, 0, 0, 0))
    strange = (*host.pairs, Pair(0, 9, nvlink=True), Pair(8, 9, nvlink=True))
    free = [gpu for gpu in host.gpus if gpu.index != 1]
    (choice,) = select_gpus({"a": 2}, free, strange).values()
    assert [gpu.index for gpu in choice.gpus] == [0, 2]


@given(st.sets(st.sampled_from([*combinations(range(5), 2)]), min_size=1))
def test_two_gpus_have_nvlink_if_any_two_have(links: set[tuple[int, int]]) -> None:
    ((first, second),) = chosen(wired((0,) * 5, links), 2)
    assert (first, second) in links
