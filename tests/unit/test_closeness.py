"""Which cards a node gets that only says how many."""

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


def chosen(box: Inventory, *counts: int, without: tuple[int, ...] = ()) -> list[list[int]]:
    """The indices that nodes with these counts get."""
    return [cards for cards, _ in explained(box, *counts, without=without)]


def explained(
    box: Inventory, *counts: int, without: tuple[int, ...] = ()
) -> list[tuple[list[int], str]]:
    """The same, with the reasons."""
    free = [gpu for gpu in box.gpus if gpu.index not in without]
    wishes = {f"tf{position}": count for position, count in enumerate(counts)}
    choices = select_gpus(wishes, free, box.pairs)
    assert list(choices) == list(wishes)
    return [([gpu.index for gpu in each.gpus], each.why) for each in choices.values()]


# ---- NUMA nodes


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((2, 2, 2, 2), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ((4, 4), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        # Served in the description's order, 1 + 1 + 3 would span.
        ((1, 1, 3, 3), [[3], [7], [0, 1, 2], [4, 5, 6]]),
        ((1, 3, 4), [[7], [4, 5, 6], [0, 1, 2, 3]]),
        # Two cards fit into what the three have left, so that the other half stays whole.
        ((3, 1), [[0, 1, 2], [3]]),
        ((8,), [[0, 1, 2, 3, 4, 5, 6, 7]]),
    ],
)
def test_a_node_stays_on_one_numa_node(counts: tuple[int, ...], expected: list[list[int]]) -> None:
    assert chosen(wired(HALVES), *counts) == expected


def test_where_none_suffices_it_spans_and_says_so() -> None:
    (first, _), (second, _), (third, why) = explained(wired(HALVES), 3, 3, 2)
    assert (first, second, third) == ([0, 1, 2], [4, 5, 6], [3, 7])
    assert why == "NUMA nodes 0 and 1, no NUMA node had 2 free, 1 at most, no NVLink between them"


def test_it_spans_as_few_as_possible() -> None:
    box = wired((0, 0, 1, 2, 2, 2, 3, 3))
    # 3 + 2 and no third one; the pair is taken that comes first, the single card is left.
    assert chosen(box, 5) == [[0, 1, 3, 4, 5]]
    # 3 + 1: of those that hold the rest the one with the fewest.
    assert chosen(box, 4) == [[2, 3, 4, 5]]


def test_pinned_cards_are_out_of_the_question() -> None:
    assert chosen(wired(HALVES), 2, 4, without=(0, 1)) == [[2, 3], [4, 5, 6, 7]]
    assert chosen(wired(HALVES), 3, without=(0, 1)) == [[4, 5, 6]]


def test_the_smallest_numa_node_that_suffices_is_used_up() -> None:
    assert chosen(wired((0, 0, 0, 1, 1, 2, 2)), 2, 1) == [[3, 4], [5]]


def test_cards_without_a_numa_node_are_one_group() -> None:
    box = wired((None, 0, None, 0, None))
    assert chosen(box, 3, 2) == [[0, 2, 4], [1, 3]]
    assert explained(box, 3)[0][1] == "NUMA node not known, no NVLink between them"
    assert explained(box, 4)[0][1].startswith("NUMA nodes 0 and one not known, no NUMA node had 4")


# ---- NVLink


def test_linked_cards_stay_together() -> None:
    box = wired(HALVES, dict.fromkeys(PIECES, 4))
    assert chosen(box, 2, 2, 2, 2) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert explained(box, 2)[0] == ([0, 2], "NUMA node 0, 4 NVLinks between them")
    assert explained(box, 1)[0] == ([0], "NUMA node 0")


def test_a_single_card_breaks_no_link() -> None:
    box = wired((0, 0, 0, 0, 0), {(0, 2): 4, (1, 3): 4})
    assert chosen(box, 1) == [[4]]
    assert chosen(box, 2, 1, 2) == [[0, 2], [4], [1, 3]]


def test_the_strongest_set_is_found_and_not_merely_a_strong_pair() -> None:
    # The strongest pair, 0 and 1, is in no strong set of three.
    box = wired((0,) * 6, {(0, 1): 6, (2, 3): 4, (2, 4): 4, (3, 4): 4})
    assert chosen(box, 3) == [[2, 3, 4]]


def test_tasks_take_neighbours_because_linked_cards_stand_side_by_side() -> None:
    box = wired((0, 0, 0, 0), {(0, 2): 4, (1, 3): 4})
    assert chosen(box, 4) == [[0, 2, 1, 3]]
    assert chosen(wired(HALVES, dict.fromkeys(PIECES, 4)), 8) == [[0, 2, 1, 3, 4, 6, 5, 7]]
    # Without links they stay in the order of their indices, NUMA node by NUMA node.
    assert chosen(wired((0, 1, 0, 1)), 4) == [[0, 2, 1, 3]]
    assert chosen(wired((0, 0, 0, 0)), 4) == [[0, 1, 2, 3]]


def test_where_a_node_spans_links_lead_from_one_numa_node_to_the_other() -> None:
    box = wired((0, 0, 1, 1, 1), {(1, 3): 4, (3, 4): 1, (0, 2): 1})
    assert chosen(box, 4, without=(2,)) == [[0, 1, 3, 4]]
    # 2, 3 and 4 of the larger one; of the other the one that is linked the most with these.
    assert chosen(box, 4) == [[1, 3, 4, 2]]


# ---- PCIe


def test_without_links_the_way_over_pcie_decides() -> None:
    paths = dict.fromkeys(combinations(range(4), 2), "NODE") | {(0, 3): "PIX", (1, 2): "PXB"}
    box = wired((0, 0, 0, 0), paths=paths)
    assert chosen(box, 2, 2) == [[0, 3], [1, 2]]
    assert chosen(box, 4) == [[0, 3, 1, 2]]


# ---- Boxes of which little is known


def test_where_all_are_alike_the_descriptions_order_stays() -> None:
    alike = dict.fromkeys(combinations(range(8), 2), 18)
    for box in (wired((None,) * 8), wired((0,) * 8, alike)):
        assert chosen(box, 1, 3, 4) == [[0], [1, 2, 3], [4, 5, 6, 7]]
    assert explained(wired((0,) * 8, alike), 4)[0][1] == "NUMA node 0, 108 NVLinks between them"


def test_nothing_known_is_said() -> None:
    box = Inventory("index", wired((None,) * 4).gpus, None, None)
    assert chosen(box, 1, 2) == [[0], [1, 2]]
    (_, why), _ = explained(box, 1, 2)
    assert why == "the next free ones; nothing is known of how the cards are connected"


def test_pairs_of_cards_that_are_not_there_change_nothing() -> None:
    box = wired((0, 0, 0, 0))
    strange = (*box.pairs, Pair(0, 9, 18), Pair(8, 9, 18))
    free = [gpu for gpu in box.gpus if gpu.index != 1]
    (choice,) = select_gpus({"a": 2}, free, strange).values()
    assert [gpu.index for gpu in choice.gpus] == [0, 2]


# ---- Large groups


def test_in_a_large_group_a_set_is_grown() -> None:
    islands = {
        (first, second): 4
        for first, second in combinations(range(40), 2)
        if first % 5 == second % 5
    }
    box = wired((0,) * 40, islands)
    eight = chosen(box, 8, 8, 8, 8, 8)
    assert eight == [list(range(start, 40, 5)) for start in range(5)]
    # What was begun is used up before another one is broken.
    assert chosen(box, 6, 4, 2) == [
        [0, 5, 10, 15, 20, 25], [1, 6, 11, 16], [30, 35],
    ]  # fmt: skip


# ---- Any box


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
    (cards,) = chosen(wired(numa, {p: n for p, n in links.items() if p[1] < len(numa)}), count)
    homes = {numa[card] for card in cards}
    if len(homes) > 1:
        assert max(numa.count(home) for home in (0, 1)) < count
        return
    (home,) = homes
    others = combinations([card for card in range(len(numa)) if numa[card] == home], count)
    inside = [sum(links[pair] for pair in combinations(each, 2)) for each in others]
    assert sum(links[pair] for pair in combinations(sorted(cards), 2)) == max(inside)
