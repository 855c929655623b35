"""No config makes a plan that gives a GPU or a CPU twice."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lab.backends.compose.render import render
from lab.backends.local.state import parse_cpuset
from lab.base.errors import ConfigError, LabError
from lab.base.units import GIB
from lab.cluster.config import Cluster, parse_cluster
from lab.cluster.gpu import Inventory
from lab.cluster.placement.place import gpus_in_use, place
from lab.cluster.placement.plan import Plan
from tests.golden.boxes import box, mig_of, uuid_of
from tests.support.conditions import ATTACKS

NODES = ("tf1", "tf2", "tf3", "tf4")


def valid(**parts: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, Any]]:
    """Configs with these values, and the other required keys."""
    return st.fixed_dictionaries({"version": st.just(1), "name": st.just("m"), **parts})


# Anything at all: most of it is refused.

few = st.integers(0, 4)
pins = st.integers(0, 9) | st.integers(0, 9).map(uuid_of) | st.integers(0, 3).map(mig_of)
nodes = st.fixed_dictionaries(
    {},
    optional={
        "gpus": few | st.lists(pins, min_size=1, max_size=3),
        "cpus": st.integers(1, 20) | st.floats(0.1, 8).map(lambda cpus: round(cpus, 2)),
        "memory": st.sampled_from(["512MiB", "2GiB", "64GiB"]),
    },
)
jobs = st.fixed_dictionaries(
    {"on": st.lists(st.sampled_from(NODES), min_size=1, max_size=5)},
    optional={
        "gpus": few,
        "share": st.booleans(),
        "gpu_memory_fraction": st.sampled_from([0.1, 0.2, 0.3, 0.5, 1]),
    },
)
descriptions = st.fixed_dictionaries(
    {
        "version": st.just(1),
        "name": st.just("m"),
        "nodes": st.fixed_dictionaries(dict.fromkeys(NODES, nodes)),
        "jobs": st.dictionaries(
            st.sampled_from(["ps", "chief", "worker", "trainer"]), jobs, min_size=1, max_size=3
        ),
    },
    optional={
        "port": st.integers(1024, 9000) | st.integers(65530, 65535),
        "box": st.fixed_dictionaries({}, optional={"gpus": st.integers(0, 12)}),
    },
)

# Pins and counts together: a GPU may have two names, and often there is one too few.

some_pins = st.lists(pins, min_size=1, max_size=2)
pinned = valid(
    nodes=st.fixed_dictionaries(
        dict.fromkeys(NODES, st.fixed_dictionaries({"gpus": st.integers(0, 2) | some_pins}))
    ),
    jobs=st.just({"worker": {"on": NODES}}),
)

# Tasks that share and tasks that do not, all on one node.

takers = st.fixed_dictionaries(
    {"on": st.integers(1, 3).map(lambda count: ["tf1"] * count)},
    optional={"gpus": st.integers(1, 2)},
)
fractions = st.sampled_from([0.1, 0.2, 0.3, 0.34, 0.5, 0.7])
sharers = st.tuples(takers, fractions).map(
    lambda drawn: {**drawn[0], "share": True, "gpu_memory_fraction": drawn[1]}
)
sharing = valid(
    nodes=st.fixed_dictionaries({"tf1": st.fixed_dictionaries({"gpus": st.integers(1, 4)})}),
    jobs=st.fixed_dictionaries(
        {"worker": sharers}, optional={"chief": takers, "trainer": sharers, "evaluator": sharers}
    ),
)

# Counts only, as many as a host may have or a few more.

counted = valid(
    nodes=st.fixed_dictionaries(
        dict.fromkeys(NODES, st.fixed_dictionaries({"gpus": st.integers(0, 4)}))
    ),
    jobs=st.just({"worker": {"on": NODES}}),
)


inventories = st.builds(
    box,
    st.integers(0, 10),
    slices=st.integers(0, 4),
    cpus=st.integers(1, 40),
    memory_bytes=st.integers(1, 128).map(lambda gib: gib * GIB),
) | st.builds(Inventory, st.just("none"), st.just(()), st.integers(1, 40), st.just(8 * GIB))


CONFIGS = {"any": descriptions, "pins": pinned, "counts": counted, "sharing": sharing}


@pytest.mark.parametrize("kind", CONFIGS)
@settings(max_examples=50 * ATTACKS)
@given(st.data())
def test_a_config_gives_an_error_or_a_plan_without_duplicates(
    kind: str, data: st.DataObject
) -> None:
    check(data.draw(CONFIGS[kind]), data.draw(inventories))


def check(config: dict[str, Any], inventory: Inventory) -> None:
    """The guarantees of the project, for one config and one host."""
    # JSON is YAML: the strategies' values pass through the real parser.
    data = json.dumps(config).encode()
    try:
        cluster = parse_cluster(data, "cluster.yaml")
    except ConfigError:
        event("not a description")
        return
    try:
        plan = place(cluster, inventory)
    except LabError:
        event("does not fit the box")
        return
    event("placed")
    gives_no_gpu_twice(cluster, plan)
    gives_all_that_is_asked(cluster, plan)
    gives_no_card_beside_its_slices(plan, inventory)
    gives_no_cpu_twice(plan, inventory)
    gives_no_port_twice(plan)
    assert set(plan.shortfalls) <= set(plan.notices)
    assert all(line.isprintable() for line in (*gpus_in_use(plan, inventory), *plan.reasons))
    assert place(parse_cluster(data, "cluster.yaml"), inventory) == plan
    assert render(plan) == render(place(cluster, inventory))


def gives_no_gpu_twice(cluster: Cluster, plan: Plan) -> None:
    owned = Counter(gpu for node in plan.nodes for gpu in node.gpus)
    assert all(count == 1 for count in owned.values())
    of_node = {node.name: set(node.gpus) for node in plan.nodes}
    holders: dict[str, list[int]] = {}
    for number, task in enumerate(plan.tasks):
        assert set(task.gpus) <= of_node[task.node]
        assert len(set(task.gpus)) == len(task.gpus)
        for gpu in task.gpus:
            holders.setdefault(gpu, []).append(number)
    for numbers in holders.values():
        tasks = [plan.tasks[number] for number in numbers]
        if len(tasks) > 1:
            assert all(cluster.jobs[task.job].share and task.shares_gpus for task in tasks)
        fractions = [Fraction(str(t.gpu_memory_fraction)) for t in tasks if t.gpu_memory_fraction]
        assert sum(fractions) <= 1


def gives_all_that_is_asked(cluster: Cluster, plan: Plan) -> None:
    assert [task.name for task in plan.tasks] == [
        f"{name}-{index}" for name, job in cluster.jobs.items() for index in range(len(job.on))
    ]
    for task in plan.tasks:
        job = cluster.jobs[task.job]
        assert task.node == job.on[task.index]
        if task.job == "ps" or plan.mode == "none":
            assert task.gpus == ()
        elif job.gpus is not None:
            assert len(task.gpus) == job.gpus
        elif cluster.nodes[task.node].gpu_count:
            assert task.gpus
    if plan.mode != "none":
        for node in plan.nodes:
            assert len(node.gpus) == cluster.nodes[node.name].gpu_count


def gives_no_card_beside_its_slices(plan: Plan, inventory: Inventory) -> None:
    given_ids = {gpu for node in plan.nodes for gpu in node.gpus}
    assert given_ids <= {gpu.device_id for gpu in inventory.gpus}
    parents = {gpu.slice_of for gpu in inventory.gpus if gpu.is_slice}
    assert not given_ids & parents
    for task in plan.tasks:
        assert len(task.gpus) == 1 or not any(gpu.startswith("MIG-") for gpu in task.gpus)


def gives_no_cpu_twice(plan: Plan, inventory: Inventory) -> None:
    assert inventory.cpus is not None
    usable = set(inventory.cpu_ids or range(inventory.cpus))
    sets = [task.cpuset for task in plan.tasks]
    assert (None in sets) == (len(usable) < len(sets))
    cpus = [cpu for cpuset in sets if cpuset is not None for cpu in parse_cpuset(cpuset)]
    assert len(cpus) == len(set(cpus))
    assert usable.issuperset(cpus)
    for task in plan.tasks:
        if task.cpus is not None:
            assert 0 < task.cpus <= len(usable)
        if task.cpuset is not None:
            own = parse_cpuset(task.cpuset)
            assert own
            assert task.cpus is None or task.cpus <= len(own)
        if task.memory_bytes is not None:
            assert 0 < task.memory_bytes <= (inventory.memory_bytes or 0)
    if not any(gpu.cpus for gpu in inventory.gpus):
        order = [
            cpu for cpuset in sets if cpuset is not None for cpu in sorted(parse_cpuset(cpuset))
        ]
        assert order == sorted(usable)[: len(order)]


def gives_no_port_twice(plan: Plan) -> None:
    addresses = [(task.node, task.port) for task in plan.tasks]
    assert len(set(addresses)) == len(addresses)
    assert all(1024 <= port <= 65535 for _, port in addresses)
