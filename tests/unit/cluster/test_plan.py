"""Placing a config on a host."""

from __future__ import annotations

import dataclasses

import pytest

from lab.base.errors import InputError, LabError
from lab.base.units import GIB
from lab.cluster.config import Cluster, load_cluster, parse_cluster
from lab.cluster.gpu import Gpu, Inventory, Process, another_host, take_inventory
from lab.cluster.placement.place import gpus_in_use, place
from lab.cluster.placement.plan import Plan
from tests.golden.boxes import box, mig_of, uuid_of, wired
from tests.support.fakes import raising
from tests.support.shown import ROOT, assert_shows


def cluster(nodes: str, jobs: str, rest: str = "") -> Cluster:
    text = f"version: 1\nname: m\nnodes: {nodes}\njobs: {jobs}\n{rest}\n"
    return parse_cluster(text.encode(), "cluster.yaml")


def gpus(plan: Plan) -> dict[str, list[str]]:
    return {task.name: list(task.gpus) for task in plan.tasks}


TWO = cluster("{tf1: {gpus: 1}, tf2: {gpus: 1}}", "{ps: {on: [tf1]}, worker: {on: [tf1, tf2]}}")


def test_the_page_on_own_programs_shows_the_flags_of_the_cluster() -> None:
    spec = place(load_cluster(ROOT / "cluster.yaml"), Inventory("none", (), 8, GIB)).cluster_spec()
    flags = " ".join(f"--{job}_hosts={','.join(hosts)}" for job, hosts in spec.items())
    assert_shows("docs/how-to/own-program.md", "--ps_hosts", flags)


@pytest.mark.parametrize(
    ("nodes", "on", "gpus"),
    [
        # Without a number, the GPUs of a node are divided equally among its tasks.
        ("a: {gpus: 4}, b: {gpus: 2}", "[a, a, b, b]", ["01", "23", "4", "5"]),
        # A count takes what is free, also before and between the GPUs that others pin.
        ("a: {gpus: 2}, b: {gpus: [3, 1]}, c: {gpus: 1}", "[a, b, c]", ["02", "31", "4"]),
        # Twenty times 0.05 is exactly 1, and more in floating point.
        ("a: {gpus: 1}", f"[{'a, ' * 19}a], share: true, gpu_memory_fraction: 0.05", ["0"] * 20),
    ],
)
def test_the_gpus_of_tasks(nodes: str, on: str, gpus: list[str]) -> None:
    plan = place(cluster(f"{{{nodes}}}", f"{{worker: {{on: {on}}}}}"), another_host(6))
    assert ["".join(task.gpus) for task in plan.tasks] == gpus


def test_pins_may_be_indices_uuids_and_slices() -> None:
    config = cluster(
        f"{{a: {{gpus: 1}}, b: {{gpus: [{uuid_of(0)}, 2]}}, c: {{gpus: [{mig_of(1)}]}}}}",
        "{worker: {on: [a, b, c]}}",
    )
    plan = place(config, box(3, slices=2))
    assert gpus(plan) == {
        "worker-0": [uuid_of(1)],
        "worker-1": [uuid_of(0), uuid_of(2)],
        "worker-2": [mig_of(1)],
    }


ON_A = "{worker: {on: [a]}}"
TO_PIN = "1 GPU and 7 MIG slices (to use them, pin their UUIDs)"
FITTING = (
    "choose a config of `clusters/` that fits, or use `--gpus index` to render for another host, or"
    " `--gpus none` for CPUs only"
)
TWICE = cluster(f"{{a: {{gpus: [{uuid_of(1)}]}}, b: {{gpus: [1]}}}}", "{worker: {on: [a, b]}}")
HALF_PINNED = cluster(
    f"{{a: {{gpus: 2}}, b: {{gpus: [{mig_of(0)}]}}, c: {{gpus: [{mig_of(1)}]}}}}",
    "{worker: {on: [a, b, c]}}",
)


def on_a(gpus: object, rest: str = "") -> Cluster:
    return cluster(f"{{a: {{gpus: {gpus}}}}}", ON_A, rest)


@pytest.mark.parametrize(
    ("config", "host", "code", "error"),
    [
        (TWO, box(1), 1, f"'m' needs 2 GPUs, but this host has 1 GPU; {FITTING}"),
        # The host that a config requires counts without a node.
        (on_a(1, "box: {gpus: 4}"), box(3), 1, "'m' needs 4 GPUs, but this host has 3 GPUs; "),
        (on_a(1), box(0), 1, "'m' needs 1 GPU, but this host has 0 GPUs; choose"),
        # A slice is no whole GPU, pinned or not.
        (TWO, box(1, slices=7), 1, f"'m' needs 2 GPUs, but this host has {TO_PIN}; "),
        (HALF_PINNED, box(1, slices=2), 1, "'m' needs 2 GPUs, but this host has 1 GPU and 2 MIG"),
        (on_a(3), box(0, slices=2), 1, "'m' needs 3 GPUs, but this host has 2 MIG slices; choose"),
        (on_a(2), box(0, slices=3), 2, "jobs.worker.on.0: worker-0 would get 2 MIG slices"),
        # Pins.
        (TWICE, box(2), 2, f"nodes.b.gpus: GPU 1 is {uuid_of(1)}, which a already has; give"),
    ],
)
def test_what_a_host_cannot_place(config: Cluster, host: Inventory, code: int, error: str) -> None:
    with pytest.raises(LabError) as caught:
        place(config, host)
    assert str(caught.value).startswith(error)
    assert caught.value.exit_code == code


def test_pinned_slices_do_not_count_as_whole_gpus() -> None:
    assert len(place(HALF_PINNED, box(2, slices=2)).nodes[0].gpus) == 2


@pytest.mark.parametrize("pin", ["7", uuid_of(7), mig_of(7)])
def test_a_missing_pinned_gpu_is_named(pin: str) -> None:
    inventory = dataclasses.replace(box(8, slices=1), gpus=(*box(7).gpus, Gpu(8, uuid_of(8))))
    expected = f"nodes.a.gpus: this host has no GPU {pin} (it has {uuid_of(0)}, {uuid_of(1)}, "
    with pytest.raises(LabError) as caught:
        place(on_a(f"[{pin}]"), inventory)
    assert caught.value.what.startswith(expected)
    assert "--gpus none" in caught.value.fix


def test_uuids_of_another_host_stay_unchanged() -> None:
    pinned = cluster(f"{{a: {{gpus: [{uuid_of(3)}]}}, b: {{}}}}", "{worker: {on: [a, b]}}")
    plan = place(pinned, take_inventory("index", pinned))
    assert gpus(plan) == {"worker-0": [uuid_of(3)], "worker-1": []}
    assert plan.reasons[0] == f"a: {uuid_of(3)}: as pinned"


@pytest.mark.parametrize("other", ["1", "[0]"])
def test_uuids_and_indices_of_another_host_cannot_be_compared(other: str) -> None:
    mixed = cluster(
        f"{{a: {{gpus: [{uuid_of(3)}]}}, b: {{gpus: {other}}}}}", "{worker: {on: [a, b]}}"
    )
    with pytest.raises(InputError, match=r"^nodes\.b\.gpus: other nodes pin UUIDs") as caught:
        place(mixed, take_inventory("index", mixed))
    assert caught.value.fix == "for `--gpus index`, pin UUIDs on all nodes or on none"


def test_another_host_is_as_in_the_config(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    this_box = raising(AssertionError("this box was looked at"))
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


FEW = "the nodes' CPU limits are clamped to the {} CPUs of this host"


@pytest.mark.parametrize(
    ("cpus", "gib", "cpusets", "limits", "memory", "notices"),
    [
        # The rest is divided equally, and a node's memory among its tasks.
        (21, 64, ["0-3", "4-7", "8-9", "10-14", "15-19"], [4, 4, 2], 4, []),
        (5, 64, ["0", "1", "2", "3", "4"], [1, 1, 1], 4, [FEW.format(5)]),
        (
            *(2, 4, [None] * 5, [2, 2, 2], 2),
            [
                "2 CPUs for 5 tasks: CPU sets are left out",
                FEW.format(2),
                "the nodes' memory limits are clamped to the 4 GiB of this host",
            ],
        ),
    ],
    ids=["large", "enough", "small"],
)
def test_the_limits_of_a_host(
    cpus: int,
    gib: int,
    cpusets: list[str | None],
    limits: list[int],
    memory: int,
    notices: list[str],
) -> None:
    plan = place(cluster(NODES, JOBS), Inventory("none", (), cpus, gib * GIB))
    assert [task.cpuset for task in plan.tasks] == cpusets
    assert [task.cpus for task in plan.tasks] == [*limits, None, None]
    expected = [memory * GIB, memory * GIB, None, None, None]
    assert [task.memory_bytes for task in plan.tasks] == expected
    assert plan.notices == tuple(notices)


def test_inventory_notices_are_first() -> None:
    plan = place(TWO, Inventory("none", (), 1, GIB, ("no NVIDIA driver answers",)))
    assert plan.notices[0] == "no NVIDIA driver answers"
    assert len(plan.notices) == 2


def test_an_excessive_sum_of_limits_is_reported() -> None:
    nodes = "{a: {memory: 3GiB}, b: {memory: 3GiB}, c: {memory: 64GiB}}"
    plan = place(cluster(nodes, "{worker: {on: [a, b]}}"), Inventory("none", (), 2, 4 * GIB))
    assert [task.memory_bytes for task in plan.tasks] == [3 * GIB, 3 * GIB]
    assert plan.notices == plan.shortfalls
    assert plan.notices[-1].startswith(
        "the nodes' memory limits are 6 GiB together, but this host has 4 GiB"
    )
    enough = place(cluster(nodes, "{worker: {on: [a]}}"), Inventory("none", (), 2, 4 * GIB))
    assert not any("together" in notice for notice in enough.notices)


HALVES = (0, 0, 0, 0, 1, 1, 1, 1)
NEAR = {0: range(8), 1: range(8, 16)}


def sets(plan: Plan) -> dict[str, str | None]:
    return {task.name: task.cpuset for task in plan.tasks}


def why(plan: Plan, name: str) -> str:
    (line,) = (each for each in plan.reasons if each.startswith(f"{name}: "))
    return line


CLOSE = wired(HALVES, affinity=NEAR, cpus=16)
UNKNOWN = wired(HALVES, cpus=16)
AS_CLOSE = "{a: {cpus: 2}, b: {gpus: [4], cpus: 4}, c: {gpus: [0], cpus: 4}}"
TOO_FEW = "{a: {}, b: {gpus: [4], cpus: 10}, c: {gpus: [5], cpus: 4}}"
ON_BOTH = "{a: {}, b: {gpus: [3, 4], cpus: 4}, c: {}}"


@pytest.mark.parametrize(
    ("nodes", "host", "expected", "reason"),
    [
        (AS_CLOSE, CLOSE, ["4-5", "8-11", "0-3"], "CPUs 8-11, close to its GPUs"),
        (
            *(AS_CLOSE, UNKNOWN, ["0-1", "2-5", "6-9"]),
            "CPUs 2-5; which CPUs are close to its GPUs is unknown",
        ),
        (
            *(TOO_FEW, CLOSE, ["6-7", "0-1,8-15", "2-5"]),
            "CPUs 0-1,8-15; 0-1 not close to its GPUs: no more are left",
        ),
        (ON_BOTH, CLOSE, ["4-9", "0-3", "10-15"], "CPUs 0-3, close to its GPUs"),
    ],
)
def test_cpus_are_those_of_the_gpus_numa_node(
    nodes: str, host: Inventory, expected: list[str], reason: str
) -> None:
    plan = place(cluster(nodes, "{ps: {on: [a]}, worker: {on: [b, c]}}"), host)
    assert list(sets(plan).values()) == expected
    assert why(plan, "worker-0") == f"worker-0: {reason}"
    assert why(plan, "ps-0") == f"ps-0: CPUs {expected[0]}"


def test_only_usable_cpus_are_allocated() -> None:
    config = cluster("{a: {}, b: {gpus: [4]}}", "{ps: {on: [a]}, worker: {on: [b]}}")
    whole = wired(HALVES, affinity=NEAR, cpus=16)
    plan = place(config, dataclasses.replace(whole, cpus=4, cpu_ids=(1, 3, 5, 9)))
    assert sets(plan) == {"ps-0": "3,5", "worker-0": "1,9"}
    none_close = place(config, dataclasses.replace(whole, cpus=2, cpu_ids=(1, 3)))
    assert why(none_close, "worker-0") == "worker-0: CPU 1; no CPU close to its GPUs is left"
    few = place(config, dataclasses.replace(whole, cpus=1, cpu_ids=(3,)))
    assert why(few, "worker-0") == "worker-0: no CPUs of its own"
    assert few.shortfalls == ("1 CPU for 2 tasks: CPU sets are left out",)


def test_every_node_with_gpus_is_explained() -> None:
    config = cluster(
        "{a: {}, b: {gpus: [1, 0]}, c: {gpus: 2}}", "{ps: {on: [a]}, worker: {on: [b, c]}}"
    )
    plan = place(config, wired(HALVES, {(2, 3): 18}))
    assert gpus(plan)["worker-0"] == [uuid_of(1), uuid_of(0)]
    assert plan.reasons[:2] == (
        f"b: {uuid_of(1)}, {uuid_of(0)} (1, 0): as pinned",
        f"c: {uuid_of(2)}, {uuid_of(3)} (2, 3): NUMA node 0, NVLink between them",
    )
    assert [line.split(":")[0] for line in plan.reasons[2:]] == ["ps-0", "worker-0", "worker-1"]
    elsewhere = place(TWO, take_inventory("index", TWO))
    assert elsewhere.reasons[0].startswith(
        "tf1: GPU 0: the next free ones; how the GPUs are connected"
    )
    assert place(TWO, Inventory("none", (), 64, GIB)).reasons[0].startswith("ps-0: CPUs 0-20")


def test_the_page_on_gpus_shows_the_reasons() -> None:
    nodes = "{tf1: {gpus: [0, 1], cpus: 4}, tf2: {gpus: 2, cpus: 4}}"
    host = wired(HALVES, {(2, 3): 18}, affinity={0: range(8), 1: range(8, 16)}, cpus=16)
    plan = place(cluster(nodes, "{worker: {on: [tf1, tf2]}}"), host)
    assert_shows("docs/how-to/gpus.md", "tf1: GPU", "\n".join(plan.reasons))


@pytest.mark.parametrize("pin", ["3", uuid_of(3)])
def test_a_mig_gpu_is_not_allocated_as_a_whole(pin: str) -> None:
    config = on_a(f"[{pin}]")
    cut = box(3, slices=2)
    both = dataclasses.replace(cut, gpus=(*cut.gpus, Gpu(3, uuid_of(3))))
    for inventory in (dataclasses.replace(cut, gpus=(*cut.gpus, Gpu(4, uuid_of(4)))), both):
        with pytest.raises(InputError) as caught:
            place(config, inventory)
        assert (
            f"nodes.a.gpus: GPU {pin} is divided into MIG slices ({mig_of(0)}, {mig_of(1)})"
            in str(caught.value)
        )
        assert caught.value.fix == (
            "pin slices by their UUIDs, or turn MIG off as root (`nvidia-smi -mig 0`)"
        )
    with pytest.raises(LabError, match="needs 4 GPUs, but this host has 3 GPUs and 2 MIG slices"):
        place(on_a(4), both)


@pytest.mark.parametrize(
    ("pins", "job", "expected"),
    [
        ((mig_of(0), mig_of(1)), "{on: [a]}", "2 MIG slices"),
        ((uuid_of(0), mig_of(1)), "{on: [a]}", "1 MIG slice and 1 GPU"),
        ((mig_of(0), mig_of(1)), "{on: [a, a], share: true}", "2 MIG slices"),
    ],
)
def test_a_task_uses_one_slice_at_most(pins: tuple[str, ...], job: str, expected: str) -> None:
    nodes = f"{{a: {{gpus: [{', '.join(pins)}]}}}}"
    config = cluster(nodes, f"{{worker: {job}}}")
    for inventory in (box(1, slices=2), take_inventory("index", config)):
        with pytest.raises(InputError) as caught:
            place(config, inventory)
        assert caught.value.what == (
            f"jobs.worker.on.0: worker-0 would get {expected}, but a process that uses a MIG"
            " slice sees no other GPU"
        )
        assert caught.value.fix == (
            "give every task one slice (`gpus: 1` in its job, as many pins on the node as tasks),"
            " or whole GPUs only"
        )


def test_tasks_may_have_a_slice_each_and_share_one() -> None:
    nodes = f"{{a: {{gpus: [{mig_of(0)}, {mig_of(1)}]}}}}"
    each = place(cluster(nodes, "{worker: {on: [a, a]}}"), box(1, slices=2))
    assert gpus(each) == {"worker-0": [mig_of(0)], "worker-1": [mig_of(1)]}
    job = "{worker: {on: [a, a], gpus: 1, share: true}}"
    assert gpus(place(cluster(nodes, job), box(1, slices=2))) == {
        "worker-0": [mig_of(0)],
        "worker-1": [mig_of(0)],
    }


def test_a_count_takes_slices_where_nothing_else_is_visible() -> None:
    nodes = f"{{a: {{gpus: 2}}, b: {{gpus: [{mig_of(1)}]}}, c: {{}}}}"
    plan = place(cluster(nodes, "{worker: {on: [a, a, b, c]}}"), box(0, slices=3))
    assert gpus(plan) == {
        "worker-0": [mig_of(0)],
        "worker-1": [mig_of(2)],
        "worker-2": [mig_of(1)],
        "worker-3": [],
    }
    assert "only MIG slices are visible" in plan.reasons[0]


def test_gpus_in_use_are_named_with_tasks_and_processes() -> None:
    book = cluster(
        "{tf1: {gpus: 1}, tf2: {gpus: [2]}, tf3: {gpus: [1]}}",
        f"{{ps: {{on: [tf3]}}, worker: {{on: [{', '.join(['tf1'] * 5)}], share: true}},"
        " chief: {on: [tf2]}}",
    )
    whole = box(3)
    used = (
        Process(4711, "python", 3435973837),
        Process(12, "evil\x1b[31m" + "x" * 99, None),
        Process(13, "", 0),
    )
    cards = tuple(dataclasses.replace(gpu, processes=used[: 3 - gpu.index]) for gpu in whole.gpus)
    inventory = dataclasses.replace(whole, gpus=cards)
    many, one = gpus_in_use(place(book, inventory), inventory)
    # The GPU of tf3, which no task holds, may be used by any process.
    assert one == f"GPU 2 ({uuid_of(2)}, chief-0) is in use: python (pid 4711, 3.2 GiB)"
    assert many.startswith(
        f"GPU 0 ({uuid_of(0)}, worker-0, worker-1, worker-2 and 2 more) is in use: python (pid"
    )
    assert "evil\\x1b[31mxxx" in many
    assert many.endswith("… (pid 12), a process (pid 13, 0 B)")
    assert gpus_in_use(place(book, whole), whole) == []


@pytest.mark.parametrize(
    ("process", "warns"),
    [
        (Process(5, "/usr/lib/xorg/Xorg", 64, computes=False), False),
        (Process(5, "/usr/bin/gnome-shell", 64, computes=True), False),
        (Process(5, "/usr/bin/firefox", 64, computes=False), False),
        (Process(5, "/usr/bin/python3", 64, computes=True), True),
    ],
)
def test_a_graphics_process_does_not_count(process: Process, warns: bool) -> None:
    one = cluster("{tf1: {gpus: 1}}", "{worker: {on: [tf1]}}")
    free = box(1)
    (gpu,) = free.gpus
    both = (dataclasses.replace(gpu, processes=(process,)),)
    inventory = dataclasses.replace(free, gpus=both)
    assert bool(gpus_in_use(place(one, inventory), inventory)) is warns
