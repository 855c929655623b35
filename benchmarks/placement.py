"""How long it takes to place a thousand tasks on a thousand cards."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from itertools import combinations

from benchmarks import pairs
from benchmarks.measure import Setting, say, told
from benchmarks.outcome import Outcome, Target
from lab.config import parse_cluster
from lab.gpu import Gpu, Inventory, Pair, take_inventory
from lab.placement.place import place
from lab.units import GIB

PLACE = Target("at most", 0.2)
CARDS, NUMA_NODES, ISLAND, PER_NODE = 1000, 8, 8, 8
CPUS = 2048


def measure(setting: Setting) -> list[Outcome]:
    """`place` alone, with a topology and without."""
    description = thousand_cards()
    topology = wired()
    plain = dataclasses.replace(topology, pairs=(), gpus=_unknown(topology.gpus))
    index = take_inventory("index", parse_cluster(description, "cluster.yaml"))
    how = (
        f"`lab.placement.plan.place` alone, in this process: {CARDS // PER_NODE} nodes that ask for"
        f" {PER_NODE} cards each, with a worker on each card."
    )
    return [
        _measured(
            ("placement", "placement of 1,000 tasks on 1,000 cards, connections known"),
            f"{how} {NUMA_NODES} NUMA nodes, NVLink islands of {ISLAND} cards, all"
            f" {len(topology.pairs):,} pairs and the CPU affinity of all known, {CPUS:,} CPUs.",
            description,
            topology,
            setting,
        ),
        _measured(
            ("placement-plain", "placement of 1,000 tasks on 1,000 cards, nothing known of them"),
            f"{how} UUIDs and {CPUS:,} CPUs, no topology.",
            description,
            plain,
            setting,
        ),
        _measured(
            ("placement-index", "placement of 1,000 tasks on 1,000 cards by index"),
            f"{how} As for another box.",
            description,
            index,
            setting,
        ),
    ]


def _measured(
    what: tuple[str, str], how: str, description: bytes, box: Inventory, setting: Setting
) -> Outcome:
    key, words = what
    say(f"{words}: {setting.pairs} times")
    taken = [
        told("place", lambda: seconds(description, box), lambda found: f"{found:.3f} s")()
        for _ in range(setting.pairs)
    ]
    return Outcome(
        key=key, what=words, unit="s", target=PLACE, found=pairs.estimate(taken), how=how
    )


def seconds(description: bytes, box: Inventory) -> float:
    """How long one placement takes; a description remembers its digest, so it is read anew."""
    cluster = parse_cluster(description, "cluster.yaml")
    began = time.perf_counter()
    plan = place(cluster, box)
    took = time.perf_counter() - began
    if len({gpu for task in plan.tasks for gpu in task.gpus}) != CARDS:
        raise RuntimeError("not every card has a task")
    return took


def thousand_cards() -> bytes:
    """A description of a thousand workers with a card each."""
    nodes = [f"tf{number}" for number in range(1, CARDS // PER_NODE + 1)]
    description = {
        "version": 1,
        "name": "thousand",
        "nodes": {node: {"gpus": PER_NODE} for node in nodes},
        "jobs": {"worker": {"on": [node for node in nodes for _ in range(PER_NODE)]}},
    }
    return json.dumps(description).encode()


def wired() -> Inventory:
    """A box with a thousand cards of which everything is known."""
    size, cpus = CARDS // NUMA_NODES, CPUS // NUMA_NODES
    cards = tuple(
        Gpu(
            index,
            f"GPU-{index:08x}-1111-2222-3333-444444444444",
            "Card",
            80 * GIB,
            numa_node=index // size,
            cpus=tuple(range(index // size * cpus, (index // size + 1) * cpus)),
        )
        for index in range(CARDS)
    )
    return Inventory(
        "uuid",
        cards,
        CPUS,
        4096 * GIB,
        cpu_ids=tuple(range(CPUS)),
        pairs=tuple(_pair(first, second, size) for first, second in combinations(range(CARDS), 2)),
    )


def _pair(first: int, second: int, size: int) -> Pair:
    if first // size != second // size:
        return Pair(first, second, 0, "SYS", p2p=False)
    if first % size // ISLAND != second % size // ISLAND:
        return Pair(first, second, 0, "NODE", p2p=True)
    return Pair(first, second, 18, "PIX", p2p=True)


def _unknown(cards: Sequence[Gpu]) -> tuple[Gpu, ...]:
    return tuple(dataclasses.replace(gpu, numa_node=None, cpus=()) for gpu in cards)
