"""Which GPUs a node gets when its config has only a number."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.gpu import Inventory, Pair
from lab.placement.gpu_selection import select_gpus
from tests.golden.boxes import wired

HALVES = (0, 0, 0, 0, 1, 1, 1, 1)
PIECES = [(0, 2), (1, 3), (4, 6), (5, 7)]


def chosen(host: Inventory, *counts: int, without: tuple[int, ...] = ()) -> list[list[int]]:
    """The indices that nodes with these counts get."""
    return [gpus for gpus, _ in explained(host, *counts, without=without)]


def explained(
    host: Inventory, *counts: int, without: tuple[int, ...] = ()
) -> list[tuple[list[int], str]]:
    """The same, with the reasons."""
    free = [gpu for gpu in host.gpus if gpu.index not in without]
    wishes = {f"tf{position}": count for position, count in enumerate(counts)}
    choices = select_gpus(wishes, free, host.pairs)
    assert list(choices) == list(wishes)
    return [([gpu.index for gpu in each.gpus], each.why) for each in choices.values()]


# ---- NUMA nodes


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((2, 2, 2, 2), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ((4, 4), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        # In the config's order, 1 + 1 + 3 would span.
        ((1, 1, 3, 3), [[3], [7], [0, 1, 2], [4, 5, 6]]),
        ((1, 3, 4), [[7], [4, 5, 6], [0, 1, 2, 3]]),
        # Two GPUs fit into the rest of the three, so that the other half stays whole.
        ((3, 1), [[0, 1, 2], [3]]),
        ((8,), [[0, 1, 2, 3, 4, 5, 6, 7]]),
    ],
)
def test_a_node_stays_on_one_numa_node(counts: tuple[int, ...], expected: list[list[int]]) -> None:
    assert chosen(wired(HALVES), *counts) == expected


def test_spanning_numa_nodes_is_reported() -> None:
    (first, _), (second, _), (third, why) = explained(wired(HALVES), 3, 3, 2)
    assert (first, second, third) == ([0, 1, 2], [4, 5, 6], [3, 7])
    assert (
        why == "NUMA nodes 0 and 1, no NUMA node had 2 free, but at most 1, no NVLink between them"
    )


def test_it_spans_as_few_as_possible() -> None:
    host = wired((0, 0, 1, 2, 2, 2, 3, 3))
    # 3 + 2 and no third one; the first pair is taken, the single GPU is left.
    assert chosen(host, 5) == [[0, 1, 3, 4, 5]]
    # 3 + 1: of those that hold the rest the one with the fewest.
    assert chosen(host, 4) == [[2, 3, 4, 5]]


def test_pinned_gpus_are_not_selected() -> None:
    assert chosen(wired(HALVES), 2, 4, without=(0, 1)) == [[2, 3], [4, 5, 6, 7]]
    assert chosen(wired(HALVES), 3, without=(0, 1)) == [[4, 5, 6]]


def test_smallest_sufficient_numa_node_is_used() -> None:
    assert chosen(wired((0, 0, 0, 1, 1, 2, 2)), 2, 1) == [[3, 4], [5]]


def test_gpus_without_a_numa_node_are_one_group() -> None:
    host = wired((None, 0, None, 0, None))
    assert chosen(host, 3, 2) == [[0, 2, 4], [1, 3]]
    assert explained(host, 3)[0][1] == "NUMA node unknown, no NVLink between them"
    assert explained(host, 4)[0][1].startswith(
        "NUMA nodes 0 and an unknown one, no NUMA node had 4"
    )


# ---- NVLink


def test_linked_gpus_stay_together() -> None:
    host = wired(HALVES, dict.fromkeys(PIECES, 4))
    assert chosen(host, 2, 2, 2, 2) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert explained(host, 2)[0] == ([0, 2], "NUMA node 0, 4 NVLinks between them")
    assert explained(host, 1)[0] == ([0], "NUMA node 0")


def test_a_single_gpu_breaks_no_link() -> None:
    host = wired((0, 0, 0, 0, 0), {(0, 2): 4, (1, 3): 4})
    assert chosen(host, 1) == [[4]]
    assert chosen(host, 2, 1, 2) == [[0, 2], [4], [1, 3]]


def test_strongest_set_is_found_not_only_a_strong_pair() -> None:
    # The strongest pair, 0 and 1, is in no strong set of three.
    host = wired((0,) * 6, {(0, 1): 6, (2, 3): 4, (2, 4): 4, (3, 4): 4})
    assert chosen(host, 3) == [[2, 3, 4]]


def test_tasks_get_neighbours_because_linked_gpus_are_adjacent() -> None:
    host = wired((0, 0, 0, 0), {(0, 2): 4, (1, 3): 4})
    assert chosen(host, 4) == [[0, 2, 1, 3]]
    assert chosen(wired(HALVES, dict.fromkeys(PIECES, 4)), 8) == [[0, 2, 1, 3, 4, 6, 5, 7]]
    # Without links they stay in the order of their indices, NUMA node by NUMA node.
    assert chosen(wired((0, 1, 0, 1)), 4) == [[0, 2, 1, 3]]
    assert chosen(wired((0, 0, 0, 0)), 4) == [[0, 1, 2, 3]]


def test_a_spanning_node_uses_links_between_numa_nodes() -> None:
    host = wired((0, 0, 1, 1, 1), {(1, 3): 4, (3, 4): 1, (0, 2): 1})
    assert chosen(host, 4, without=(2,)) == [[0, 1, 3, 4]]
    # 2, 3 and 4 of the larger one; of the other the one that is linked the most with these.
    assert chosen(host, 4) == [[1, 3, 4, 2]]


# ---- PCIe


def test_without_links_pcie_distance_decides() -> None:
    paths = dict.fromkeys(combinations(range(4), 2), "NODE") | {(0, 3): "PIX", (1, 2): "PXB"}
    host = wired((0, 0, 0, 0), paths=paths)
    assert chosen(host, 2, 2) == [[0, 3], [1, 2]]
    assert chosen(host, 4) == [[0, 3, 1, 2]]


# ---- Hosts with little information


def test_equal_gpus_keep_the_configs_order() -> None:
    alike = dict.fromkeys(combinations(range(8), 2), 18)
    for host in (wired((None,) * 8), wired((0,) * 8, alike)):
        assert chosen(host, 1, 3, 4) == [[0], [1, 2, 3], [4, 5, 6, 7]]
    assert explained(wired((0,) * 8, alike), 4)[0][1] == "NUMA node 0, 108 NVLinks between them"


def test_unknown_topology() -> None:
    host = Inventory("index", wired((None,) * 4).gpus, None, None)
    assert chosen(host, 1, 2) == [[0], [1, 2]]
    (_, why), _ = explained(host, 1, 2)
    assert why == "the next free ones; how the GPUs are connected is unknown"


def test_pairs_of_missing_gpus_change_nothing() -> None:
    host = wired((0, 0, 0, 0))
    strange = (*host.pairs, Pair(0, 9, 18), Pair(8, 9, 18))
    free = [gpu for gpu in host.gpus if gpu.index != 1]
    (choice,) = select_gpus({"a": 2}, free, strange).values()
    assert [gpu.index for gpu in choice.gpus] == [0, 2]


# ---- Large groups


def test_in_a_large_group_a_set_is_grown() -> None:
    islands = {
        (first, second): 4
        for first, second in combinations(range(40), 2)
        if first % 5 == second % 5
    }
    host = wired((0,) * 40, islands)
    eight = chosen(host, 8, 8, 8, 8, 8)
    assert eight == [list(range(start, 40, 5)) for start in range(5)]
    # A partly used NUMA node is used up before another one is used.
    assert chosen(host, 6, 4, 2) == [
        [0, 5, 10, 15, 20, 25], [1, 6, 11, 16], [30, 35],
    ]  # fmt: skip


# ---- Any host


@settings(max_examples=400)
@given(
    st.lists(st.sampled_from([0, 1]), min_size=1, max_size=8),
    st.lists(st.sampled_from([0, 0, 1, 4]), min_size=28, max_size=28),
    st.integers(1, 8),
)
def test_no_other_set_of_its_numa_node_has_more_links(
    numa: list[int], drawn: list[int], count: int
) -> None:
    links = dict(zip(combinations(range(8), 2), drawn, strict=True))
    count = min(count, len(numa))
    (gpus,) = chosen(wired(numa, {p: n for p, n in links.items() if p[1] < len(numa)}), count)
    homes = {numa[card] for card in gpus}
    if len(homes) > 1:
        assert max(numa.count(home) for home in (0, 1)) < count
        return
    (home,) = homes
    others = combinations([card for card in range(len(numa)) if numa[card] == home], count)
    inside = [sum(links[pair] for pair in combinations(each, 2)) for each in others]
    assert sum(links[pair] for pair in combinations(sorted(gpus), 2)) == max(inside)
