"""The time to place 1,000 tasks on 1,000 GPUs."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from itertools import combinations

from benchmarks import pairs
from benchmarks.measure import Setting, print_progress, with_progress
from benchmarks.outcome import Outcome, Target
from lab.config import parse_cluster
from lab.gpu import Gpu, Inventory, Pair, take_inventory
from lab.placement.place import place
from lab.units import GIB

PLACE = Target("at most", 0.2)
GPUS, NUMA_NODES, ISLAND, PER_NODE = 1000, 8, 8, 8
CPUS = 2048


def measure(setting: Setting) -> list[Outcome]:
    """Measure `place`, with a topology and without."""
    config = thousand_gpus()
    topology = wired()
    plain = dataclasses.replace(topology, pairs=(), gpus=_unknown(topology.gpus))
    index = take_inventory("index", parse_cluster(config, "cluster.yaml"))
    how = (
        f"Only `lab.placement.place.place`, in this process: {GPUS // PER_NODE} nodes with"
        f" {PER_NODE} GPUs each, and a worker on each GPU."
    )
    return [
        _measured(
            ("placement", "placement of 1,000 tasks on 1,000 GPUs, with the topology"),
            f"{how} {NUMA_NODES} NUMA nodes, NVLink islands of {ISLAND} GPUs, all"
            f" {len(topology.pairs):,} pairs, the CPU affinity of all GPUs, {CPUS:,} CPUs.",
            config,
            topology,
            setting,
        ),
        _measured(
            ("placement-plain", "placement of 1,000 tasks on 1,000 GPUs, without a topology"),
            f"{how} UUIDs and {CPUS:,} CPUs, no topology.",
            config,
            plain,
            setting,
        ),
        _measured(
            ("placement-index", "placement of 1,000 tasks on 1,000 GPUs by index"),
            f"{how} Like a plan for another host.",
            config,
            index,
            setting,
        ),
    ]


def _measured(
    what: tuple[str, str], how: str, config: bytes, inventory: Inventory, setting: Setting
) -> Outcome:
    key, label = what
    print_progress(f"{label}: {setting.pairs} times")
    taken = [
        with_progress("place", lambda: seconds(config, inventory), lambda found: f"{found:.3f} s")()
        for _ in range(setting.pairs)
    ]
    return Outcome(
        key=key, what=label, unit="s", target=PLACE, found=pairs.estimate(taken), how=how
    )


def seconds(config: bytes, inventory: Inventory) -> float:
    """Return the time of one placement of a newly parsed config, which has no cached digest."""
    cluster = parse_cluster(config, "cluster.yaml")
    began = time.perf_counter()
    plan = place(cluster, inventory)
    took = time.perf_counter() - began
    if len({gpu for task in plan.tasks for gpu in task.gpus}) != GPUS:
        raise RuntimeError("a GPU has no task")
    return took


def thousand_gpus() -> bytes:
    """Return a config of 1,000 workers with a GPU each."""
    nodes = [f"tf{number}" for number in range(1, GPUS // PER_NODE + 1)]
    config = {
        "version": 1,
        "name": "thousand",
        "nodes": {node: {"gpus": PER_NODE} for node in nodes},
        "jobs": {"worker": {"on": [node for node in nodes for _ in range(PER_NODE)]}},
    }
    return json.dumps(config).encode()


def wired() -> Inventory:
    """Return the inventory of a host with 1,000 GPUs and a complete topology."""
    size, cpus = GPUS // NUMA_NODES, CPUS // NUMA_NODES
    gpus = tuple(
        Gpu(
            index,
            f"GPU-{index:08x}-1111-2222-3333-444444444444",
            "GPU",
            80 * GIB,
            numa_node=index // size,
            cpus=tuple(range(index // size * cpus, (index // size + 1) * cpus)),
        )
        for index in range(GPUS)
    )
    return Inventory(
        "uuid",
        gpus,
        CPUS,
        4096 * GIB,
        cpu_ids=tuple(range(CPUS)),
        pairs=tuple(_pair(first, second, size) for first, second in combinations(range(GPUS), 2)),
    )


def _pair(first: int, second: int, size: int) -> Pair:
    if first // size != second // size:
        return Pair(first, second, 0, "SYS", p2p=False)
    if first % size // ISLAND != second % size // ISLAND:
        return Pair(first, second, 0, "NODE", p2p=True)
    return Pair(first, second, 18, "PIX", p2p=True)


def _unknown(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    return tuple(dataclasses.replace(gpu, numa_node=None, cpus=()) for gpu in gpus)
