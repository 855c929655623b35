"""Placing a description on a box."""

from __future__ import annotations

import dataclasses

import pytest

from lab.cluster import Cluster, parse_cluster
from lab.errors import InputError, LabError
from lab.gpus import Gpu, Inventory, take_inventory
from lab.plan import Link, Plan, place
from lab.sizes import GIB
from tests.golden.boxes import box, mig_of, uuid_of


def cluster(nodes: str, jobs: str, rest: str = "") -> Cluster:
    text = f"version: 1\nname: m\nnodes: {nodes}\njobs: {jobs}\n{rest}\n"
    return parse_cluster(text.encode(), "cluster.yaml")


def gpus(plan: Plan) -> dict[str, list[str]]:
    return {task.name: list(task.gpus) for task in plan.tasks}


TWO = cluster("{tf1: {gpus: 1}, tf2: {gpus: 1}}", "{ps: {on: [tf1]}, worker: {on: [tf1, tf2]}}")


def test_ports_count_up_on_a_node_in_the_order_of_the_jobs() -> None:
    description = cluster(
        "{tf1: {}, tf2: {}}",
        "{worker: {on: [tf1, tf2, tf1]}, ps: {on: [tf2, tf1]}}",
        "port: 9001",
    )
    plan = place(description, take_inventory("none", description))
    assert plan.cluster_spec() == {
        "worker": ["tf1:9001", "tf2:9001", "tf1:9002"],
        "ps": ["tf2:9002", "tf1:9003"],
    }
    assert [task.name for task in plan.tasks] == [
        "worker-0",
        "worker-1",
        "worker-2",
        "ps-0",
        "ps-1",
    ]


def test_the_books_description_is_the_books_setting() -> None:
    description = cluster(
        "{tf1: {gpus: 1}}",
        "{ps: {on: [tf1]}, worker: {on: [tf1, tf1, tf1], share: true, gpu_memory_fraction: 0.2}}",
        "port: 9001",
    )
    plan = place(description, box(1))
    assert plan.cluster_spec() == {
        "ps": ["tf1:9001"],
        "worker": ["tf1:9002", "tf1:9003", "tf1:9004"],
    }
    ps, *workers = plan.tasks
    assert (ps.gpus, ps.shares_gpus, ps.gpu_memory_fraction) == ((), False, None)
    for worker in workers:
        assert worker.gpus == (uuid_of(0),)
        assert (worker.shares_gpus, worker.gpu_memory_fraction) == (True, 0.2)


def test_pins_may_be_indices_uuids_and_slices() -> None:
    description = cluster(
        f"{{a: {{gpus: 1}}, b: {{gpus: [{uuid_of(0)}, 2]}}, c: {{gpus: [{mig_of(1)}]}}}}",
        "{worker: {on: [a, b, c]}}",
    )
    plan = place(description, box(3, slices=2))
    assert gpus(plan) == {
        "worker-0": [uuid_of(1)],
        "worker-1": [uuid_of(0), uuid_of(2)],
        "worker-2": [mig_of(1)],
    }


def test_two_names_of_one_gpu_are_found_out() -> None:
    description = cluster(
        f"{{a: {{gpus: [{uuid_of(1)}]}}, b: {{gpus: [1]}}}}", "{worker: {on: [a, b]}}"
    )
    with pytest.raises(InputError, match=r"nodes\.b\.gpus: GPU 1 is GPU-00000001.*, which a has"):
        place(description, box(2))


def test_a_box_that_is_too_small_names_the_shortage_and_the_ways_out() -> None:
    with pytest.raises(LabError) as caught:
        place(TWO, box(1))
    assert caught.value.exit_code == 1
    assert caught.value.what == "'m' needs 2 GPUs, and this box has 1 GPU"
    for way in ("clusters/", "--gpus index", "--gpus none"):
        assert way in caught.value.mend


def test_what_the_box_must_have_counts_even_if_no_node_asks_for_it() -> None:
    description = cluster("{a: {gpus: 1}}", "{worker: {on: [a]}}", "box: {gpus: 4}")
    with pytest.raises(LabError, match="needs 4 GPUs, and this box has 3 GPUs"):
        place(description, box(3))


def test_slices_are_given_by_their_uuid_only() -> None:
    with pytest.raises(LabError, match="needs 2 GPUs, and this box has 1 GPU and 7 MIG slices"):
        place(TWO, box(1, slices=7))


@pytest.mark.parametrize("pin", ["7", uuid_of(7), mig_of(7)])
def test_a_pinned_gpu_that_is_not_there_is_named(pin: str) -> None:
    description = cluster(f"{{a: {{gpus: [{pin}]}}}}", "{worker: {on: [a]}}")
    inventory = dataclasses.replace(box(8, slices=1), gpus=(*box(7).gpus, Gpu(8, uuid_of(8))))
    with pytest.raises(LabError, match=f"nodes.a.gpus: this box has no GPU {pin}"):
        place(description, inventory)


def test_without_gpus_nothing_is_pinned() -> None:
    plan = place(TWO, Inventory("none", (), 64, 64 * GIB))
    assert gpus(plan) == {"ps-0": [], "worker-0": [], "worker-1": []}
    assert all(not node.gpus for node in plan.nodes)


def test_uuids_of_another_box_stay_as_they_are() -> None:
    pinned = cluster(f"{{a: {{gpus: [{uuid_of(3)}]}}, b: {{}}}}", "{worker: {on: [a, b]}}")
    plan = place(pinned, take_inventory("index", pinned))
    assert gpus(plan) == {"worker-0": [uuid_of(3)], "worker-1": []}


@pytest.mark.parametrize("other", ["1", "[0]"])
def test_uuids_and_indices_of_another_box_cannot_be_told_apart(other: str) -> None:
    mixed = cluster(
        f"{{a: {{gpus: [{uuid_of(3)}]}}, b: {{gpus: {other}}}}}", "{worker: {on: [a, b]}}"
    )
    with pytest.raises(InputError, match=r"nodes\.b\.gpus"):
        place(mixed, take_inventory("index", mixed))


def test_another_box_is_as_the_description_says_whatever_this_one_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def this_box() -> None:
        raise AssertionError("this box was looked at")

    monkeypatch.setattr("os.cpu_count", this_box)
    monkeypatch.setattr("os.sysconf", this_box)
    limits = cluster("{a: {cpus: 8, memory: 8GiB}}", "{worker: {on: [a]}}", "box: {cpus: 16}")
    plan = place(limits, take_inventory("index", limits))
    assert (plan.tasks[0].cpus, plan.tasks[0].cpuset) == (8, "0-7")
    unknown = cluster("{a: {cpus: 8, memory: 8GiB}}", "{worker: {on: [a]}}")
    plan = place(unknown, take_inventory("index", unknown))
    assert (plan.tasks[0].cpus, plan.tasks[0].cpuset) == (8, None)
    assert plan.tasks[0].memory_bytes == 8 * GIB
    assert plan.notices == ()


NODES = "{a: {cpus: 8, memory: 8GiB}, b: {cpus: 2}, c: {}}"
JOBS = "{ps: {on: [a]}, worker: {on: [a, b, c, c]}}"


def limits(cpus: int, memory: int) -> tuple[list[object], list[object], tuple[str, ...]]:
    plan = place(cluster(NODES, JOBS), Inventory("none", (), cpus, memory))
    return [t.cpuset for t in plan.tasks], [t.cpus for t in plan.tasks], plan.notices


def test_a_large_box_gives_what_is_stated_and_divides_the_rest_equally() -> None:
    sets, cpus, notices = limits(21, 64 * GIB)
    assert sets == ["0-3", "4-7", "8-9", "10-14", "15-19"]
    assert cpus == [4, 4, 2, None, None]
    assert notices == ()


def test_a_box_with_a_cpu_for_every_task_gives_each_its_own_and_says_what_it_clamps() -> None:
    sets, cpus, notices = limits(5, 64 * GIB)
    assert sets == ["0", "1", "2", "3", "4"]
    assert cpus == [1, 1, 1, None, None]
    assert notices == ("the nodes' CPU limits are clamped to the 5 CPUs of this box",)


def test_a_small_box_has_no_sets_and_clamps_to_what_there_is() -> None:
    sets, cpus, notices = limits(2, 4 * GIB)
    assert sets == [None] * 5
    assert cpus == [2, 2, 2, None, None]
    assert notices == (
        "2 CPUs for 5 tasks: CPU sets are left out",
        "the nodes' CPU limits are clamped to the 2 CPUs of this box",
        "the nodes' memory limits are clamped to the 4 GiB of this box",
    )


def test_a_nodes_memory_is_divided_among_its_tasks() -> None:
    plan = place(cluster(NODES, JOBS), Inventory("none", (), 2, 64 * GIB))
    assert [task.memory_bytes for task in plan.tasks] == [4 * GIB, 4 * GIB, None, None, None]
    small = place(cluster(NODES, JOBS), Inventory("none", (), 2, 4 * GIB))
    assert small.tasks[0].memory_bytes == 2 * GIB


def test_links_belong_to_their_nodes() -> None:
    description = cluster(
        "{a: {}, b: {}}", "{worker: {on: [a, b]}}", "links: {b: {rate: 100mbit, delay: 5ms}}"
    )
    plan = place(description, take_inventory("none", description))
    assert [node.link for node in plan.nodes] == [None, Link(100_000_000, 5000)]


def test_notices_of_the_inventory_come_first() -> None:
    plan = place(TWO, Inventory("none", (), 1, GIB, ("no NVIDIA driver answers",)))
    assert plan.notices[0] == "no NVIDIA driver answers"
    assert len(plan.notices) == 2
