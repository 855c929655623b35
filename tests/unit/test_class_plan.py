"""What each seat of a class gets, and every shortage of a host."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from lab.backends.selection import LOCAL
from lab.classroom.config import ClassConfig, Tls
from lab.classroom.planning import NOT_ISOLATED, ClassPlan, HostFacts, plan_class
from lab.errors import ConfigError
from lab.gpu import Inventory, Process
from lab.units import GIB, MIB
from tests.golden.boxes import box, mig_of, uuid_of, wired
from tests.support.classes import NO_GPUS, a_class, a_cluster, a_host, plan


def shortages(config: ClassConfig, host: HostFacts | None = None, needs: object = 0) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        plan(config, host, needs)
    assert caught.value.exit_code == 2
    return caught.value.problems


def gpus(found: ClassPlan) -> dict[str, tuple[str, ...]]:
    return {seat.name: seat.gpus for seat in found.seats}


# ---- GPUs


def test_each_seat_gets_its_own_gpu() -> None:
    found = plan(a_class(3, 1), a_host(box(4)), 1)
    assert gpus(found) == {
        "seat-01": (uuid_of(0),),
        "seat-02": (uuid_of(1),),
        "seat-03": (uuid_of(2),),
    }
    assert found.queue_gpus == found.run_networks == ()


@pytest.mark.parametrize("share", [False, True])
def test_the_gpus_of_a_seat_are_close(*, share: bool) -> None:
    linked = wired((0, 0, 0, 0), {(0, 2): 4, (1, 3): 4})
    found = gpus(plan(a_class(2, {"count": 2, "share": share}), a_host(linked), 2))
    assert {frozenset(ids) for ids in found.values()} == {
        frozenset({uuid_of(0), uuid_of(2)}),
        frozenset({uuid_of(1), uuid_of(3)}),
    }


def test_mig_devices_are_used_only_if_the_class_says_so() -> None:
    host = a_host(box(2, slices=3))
    assert gpus(plan(a_class(2, {"count": 1, "mig": True}), host)) == {
        "seat-01": (mig_of(0),),
        "seat-02": (mig_of(1),),
    }
    assert gpus(plan(a_class(2, 1), host, 1)) == {
        "seat-01": (uuid_of(0),),
        "seat-02": (uuid_of(1),),
    }


def test_a_queue_has_all_gpus_and_a_network_for_each_of_its_runs() -> None:
    found = plan(a_class(["ada", "bob", "eve"], {"queue": True}), a_host(box(2, slices=3)), 2)
    assert gpus(found) == {"ada": (), "bob": (), "eve": ()}
    assert found.queue_gpus == (uuid_of(0), uuid_of(1))
    assert len(found.run_networks) == 2
    found = plan(a_class(3, {"queue": True, "mig": True}), a_host(box(2, slices=3)), 1)
    assert found.queue_gpus == (mig_of(0), mig_of(1), mig_of(2))


FEW = "seat.gpus: 30 seats with 1 GPU each need 30 GPUs, this host has 8; use "


@pytest.mark.parametrize(
    ("config", "host", "expected"),
    [
        (
            a_class(30, 1),
            box(),
            f"{FEW}`gpus: {{queue: true}}`, `gpus: {{count: 1, share: true}}`, or 8 seats at most",
        ),
        (
            a_class(2, {"count": 2, "mig": True}),
            box(8, slices=3),
            "seat.gpus: 2 seats with 2 MIG devices each need 4 MIG devices, this host has 3; use "
            "`gpus: {mig: true, queue: true}`, `gpus: {count: 2, mig: true, share: true}`, or 1 "
            "seat at most",
        ),
        (
            a_class(1, 9),
            box(),
            "seat.gpus: a seat needs 9 GPUs, this host has 8; use `count: 8` or less, or "
            "`gpus: {queue: true}`",
        ),
        (
            a_class(3, {"count": 3, "share": True}),
            box(2),
            "seat.gpus: a seat needs 3 GPUs, this host has 2; use `count: 2` or less, or "
            "`gpus: {queue: true}`",
        ),
        (
            a_class(3, 1),
            NO_GPUS,
            "seat.gpus: this host has no GPU (no NVIDIA driver); use `gpus: 0`: then every seat "
            "trains on CPUs",
        ),
        (
            a_class(3, {"queue": True}),
            NO_GPUS,
            "seat.gpus: this host has no GPU (no NVIDIA driver); use `gpus: 0`: then every seat "
            "trains on CPUs",
        ),
        (
            a_class(1, 1),
            box(0, slices=7),
            "seat.gpus: this host has no whole GPU and 7 MIG devices; add `mig: true`",
        ),
        (
            a_class(1, {"count": 1, "mig": True}),
            box(1),
            "seat.gpus: this host has no MIG device and 1 whole GPU; remove `mig: true`, or create "
            "MIG devices as root (`nvidia-smi mig -cgi`)",
        ),
    ],
)
def test_too_few_gpus(config: ClassConfig, host: Inventory, expected: str) -> None:
    assert shortages(config, a_host(host), needs=1) == [expected]


# ---- The cluster config of a seat


def test_the_cluster_config_fits_into_a_seat() -> None:
    assert shortages(a_class(2, 1), needs=8) == [
        "cluster: cluster.yaml needs 8 GPUs, and a seat has 1; name a smaller config, such as "
        "clusters/book.yaml for 1 GPU, or use `count: 8`"
    ]
    assert shortages(a_class(2, {"queue": True}), a_host(box(2)), needs=3) == [
        "cluster: cluster.yaml needs 3 GPUs, and the queue has 2; name a smaller config, such as "
        "clusters/book.yaml for 1 GPU"
    ]
    assert shortages(a_class(2, 1), needs=[uuid_of(3)]) == [
        "cluster: nodes.a.gpus in cluster.yaml names a GPU by its UUID, and seats have different "
        "GPUs; state a number of GPUs there"
    ]


@pytest.mark.parametrize(
    ("wanted", "needs", "notice"),
    [
        (0, 2, "cluster.yaml asks for 2 GPUs, and a seat has none: it trains on CPUs"),
        (2, 1, "a seat has 2 GPUs, and cluster.yaml uses 1"),
        (1, 0, "a seat has 1 GPU, and cluster.yaml uses none"),
    ],
)
def test_a_seat_that_uses_its_gpus_in_another_way(wanted: object, needs: int, notice: str) -> None:
    assert plan(a_class(2, wanted), a_host(box(8, slices=2)), needs).notices == (notice,)


def test_the_notices_of_a_queue() -> None:
    first, second = plan(a_class(30, {"queue": True}), needs=2).notices
    assert first == "30 seats take turns on 8 GPUs: `lab run --backend class`, 10 min at most"
    assert second == (
        "without `--backend class`, a seat trains cluster.yaml on CPUs: it holds no GPU"
    )
    assert plan(a_class(30, {"queue": True})).notices[1] == (
        "cluster.yaml asks for no GPU, so its runs do not use those of the queue"
    )


def test_seats_that_share_and_gpus_in_use_are_reported() -> None:
    first, *others = box(2).gpus
    busy = replace(first, processes=(Process(4711, "python", 3 * GIB),))
    host = a_host(Inventory("uuid", (busy, *others), 64, 512 * GIB, notices=("from the driver",)))
    found = plan(a_class(3, {"count": 1, "share": True}), host, 1)
    assert found.notices == (
        "from the driver",
        "up to 2 seats share a GPU: their trainings also share its memory",
        f"warning: GPU 0 ({uuid_of(0)}, seat-01, seat-03) is in use: python (pid 4711, 3 GiB)",
    )
    found = plan(a_class(3, {"queue": True}), host, 1)
    assert f"warning: GPU 0 ({uuid_of(0)}, queue) is in use" in found.notices[-2]


# ---- CPUs, memory, disk


def test_a_class_on_cpus_has_no_notices() -> None:
    assert plan(a_class(2), a_host(NO_GPUS)).notices == ()


def test_cpus_may_be_promised_twice_but_not_to_one_seat() -> None:
    assert plan(a_class(30, cpus=1.5, memory="512MiB"), a_host(NO_GPUS)).notices == (
        "30 seats may use 45 CPUs together, this host has 4: programs that compute at once are "
        "slower",
    )
    with_runs = plan(a_class(2, cpu_runs=1, cpus=1.5), a_host(NO_GPUS))
    assert with_runs.notices[-1].startswith("2 seats and 1 run of the queue may use 4.5 CPUs")
    assert shortages(a_class(1, cpus=4.5), a_host(NO_GPUS)) == [
        "seat.cpus: a seat needs 4.5 CPUs, this host has 4; use `cpus: 4` or less"
    ]


@pytest.mark.parametrize(
    ("seats", "memory", "expected"),
    [
        (
            30,
            "4GiB",
            "30 seats with 4 GiB each need 120 GiB, this host has 16 GiB of memory; use "
            "`memory: 546MiB` or less, or 4 seats at most",
        ),
        (
            2,
            "20GiB",
            "2 seats with 20 GiB each need 40 GiB, this host has 16 GiB of memory; use "
            "`memory: 8GiB` or less",
        ),
    ],
)
def test_too_little_memory(seats: int, memory: str, expected: str) -> None:
    assert shortages(a_class(seats, memory=memory), a_host(NO_GPUS)) == [f"seat.memory: {expected}"]


def test_too_little_disk_space() -> None:
    assert shortages(a_class(30, disk="5GiB")) == [
        "seat.disk: 30 seats with 5 GiB each need 150 GiB, this host has 100 GiB of free disk "
        "space; use `disk: 3413MiB` or less, or 20 seats at most"
    ]
    assert shortages(a_class(30, disk="5GiB"), a_host(disk_free_bytes=64 * MIB)) == [
        "seat.disk: 30 seats with 5 GiB each need 150 GiB, this host has 64 MiB of free disk "
        "space; use fewer and smaller seats"
    ]


def test_a_limit_of_the_disk_that_the_host_does_not_enforce() -> None:
    found = plan(a_class(2), a_host(NO_GPUS, disk_unenforced="only root can"))
    assert found.notices == ("disk: not enforced: only root can",)
    assert not found.disk_enforced
    assert not plan(a_class(2), a_host(NO_GPUS, disk_unenforced=None)).disk_enforced


def test_a_limit_of_the_disk_that_the_host_enforces() -> None:
    host = a_host(NO_GPUS, disk_unenforced="")
    found = plan(a_class(2), host)
    assert found.notices == ("disk: enforced: each seat has a file system of 1 GiB",)
    assert found.disk_enforced
    assert found.to_json()["disk_enforced"] is True
    assert not plan(a_class(2, disk=None), host).disk_enforced


def test_missing_limits_are_reported_and_an_unknown_host_is_not_judged() -> None:
    another = Inventory("index", box(8).gpus, None, None)
    found = plan(
        a_class(200, cpus=64, memory="64GiB", disk="1TiB"), a_host(another, disk_free_bytes=None)
    )
    assert found.notices == ()
    found = plan(
        a_class(2, cpus=None, memory=None, disk=None), a_host(disk_unenforced="only root can")
    )
    assert found.notices == (
        "no limit of CPUs, memory, disk: one seat can take all that the host has",
    )
    assert (found.seats[0].cpus, found.seats[0].memory_bytes, found.seats[0].disk_bytes) == (
        None,
        None,
        None,
    )


# ---- Networks


def test_networks_follow_each_other() -> None:
    found = plan(a_class(2, {"queue": True}), a_host(box(1)), 1)
    networks = [found.proxy_network, *(seat.network for seat in found.seats), *found.run_networks]
    assert list(map(str, networks)) == [
        *("10.89.0.0/28", "10.89.0.16/28", "10.89.0.32/28", "10.89.0.48/28"),
    ]


def test_the_range_also_holds_the_runs_of_the_queue() -> None:
    config = a_class(2, {"queue": True}, network="10.89.0.0/26")
    assert len(plan(config, a_host(box(1)), 1).run_networks) == 1
    assert shortages(config, a_host(box(2)), 1) == [
        "network: 2 seats, 2 runs of the queue and the proxy need 5 networks of /28, and "
        "10.89.0.0/26 has 4; use a range of /25"
    ]


def test_runs_without_gpus_have_networks_and_memory_of_their_own() -> None:
    found = plan(a_class(2, 1, cpu_runs=3), a_host(box(2)), 1)
    assert found.queue_gpus == ()
    assert list(map(str, found.run_networks)) == [
        "10.89.0.48/28",
        "10.89.0.64/28",
        "10.89.0.80/28",
    ]
    assert found.notices[-1] == (
        "3 runs without GPUs can have containers at the same time: "
        "`lab run --backend class --gpus none`"
    )
    found = plan(a_class(2, cpu_runs=1), a_host(NO_GPUS))
    assert found.notices[-1].endswith("time: `lab run --backend class`")
    both = plan(a_class(2, {"queue": True}, cpu_runs=3), a_host(box(2)), 1)
    assert (len(both.queue_gpus), len(both.run_networks)) == (2, 5)
    few = a_class(2, {"queue": True}, cpu_runs=1, network="10.89.0.0/26", memory="3GiB")
    assert shortages(few, a_host(replace(box(2), memory_bytes=12 * GIB)), 1) == [
        "seat.memory: 2 seats and 3 runs of the queue with 3 GiB each need 15 GiB, this host has "
        "12 GiB of memory; use `memory: 2457MiB` or less, or 1 seat at most",
        "network: 2 seats, 3 runs of the queue and the proxy need 6 networks of /28, and "
        "10.89.0.0/26 has 4; use a range of /25",
    ]


def test_networks_of_the_host_are_not_taken() -> None:
    used = (IPv4Network("10.89.0.32/27"), IPv4Network("10.0.0.0/16"), IPv4Network("10.89.9.0/24"))
    assert shortages(a_class(2), a_host(networks=used)) == [
        "network: the class takes its networks from 10.89.0.0/28 on, and this host uses "
        "10.89.0.32/27; use `network: 10.1.0.0/16`"
    ]
    everything = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
    assert shortages(a_class(2), a_host(networks=everything)) == [
        "network: the class takes its networks from 10.89.0.0/28 on, and this host uses "
        "10.0.0.0/8; use another range"
    ]
    several = tuple(IPv4Network(f"10.89.0.{16 * number}/28") for number in range(6))
    (problem,) = shortages(a_class(9), a_host(networks=several))
    assert "uses 10.89.0.0/28, 10.89.0.16/28, 10.89.0.32/28, 10.89.0.48/28, …; use" in problem


def test_all_shortages_are_reported_together() -> None:
    config = a_class(30, 1, cpus=5, memory="4GiB", disk="5GiB", network="10.89.0.0/23")
    host = HostFacts(
        replace(box(1), cpus=4, memory_bytes=16 * GIB),
        disk_free_bytes=20 * GIB,
        networks=(IPv4Network("10.89.1.0/24"),),
    )
    found = shortages(config, host, needs=2)
    assert [line.partition(":")[0] for line in found] == [
        *("seat.gpus", "cluster", "seat.cpus", "seat.memory", "seat.disk", "network"),
    ]
    queued = a_class(30, {"queue": True}, memory="4GiB", network="10.89.0.0/23")
    found = shortages(queued, a_host(replace(box(2), memory_bytes=GIB)), needs=3)
    assert [line.partition(":")[0] for line in found] == ["cluster", "seat.memory", "network"]


def test_the_plan_as_json() -> None:
    found = plan(a_class(1, 1), needs=1).to_json()
    assert json.loads(json.dumps(found)) == {
        "name": "w",
        "backend": "compose",
        "seats": [
            {
                "name": "seat-01",
                "gpus": [uuid_of(0)],
                "network": "10.89.0.16/28",
                "cpus": 1.0,
                "memory_bytes": GIB,
                "disk_bytes": GIB,
            }
        ],
        "queue_gpus": [],
        "proxy_network": "10.89.0.0/28",
        "run_networks": [],
        "address": "127.0.0.1",
        "port": 8000,
        "disk_enforced": False,
        "notices": [],
    }


def test_the_files_for_https_are_found_from_every_directory() -> None:
    tls = Tls.model_construct(certificate=Path("c.pem"), key=Path("/k.pem"))
    found = plan(a_class().model_copy(update={"tls": tls})).tls
    assert found is not None
    assert (found.certificate, found.key) == (Path.cwd() / "c.pem", Path("/k.pem"))
    assert plan(a_class()).tls is None


# ---- Without Docker


def locally(config: ClassConfig, host: HostFacts | None = None, needs: object = 0) -> ClassPlan:
    return plan_class(config, host or a_host(), a_cluster(needs), LOCAL)


def test_a_class_of_processes_says_what_it_cannot_isolate() -> None:
    found = locally(a_class(2, 1, cpus=None), a_host(box(2)), 1)
    assert found.is_local
    assert gpus(found) == {"seat-01": (uuid_of(0),), "seat-02": (uuid_of(1),)}
    *lines, last = found.notices
    assert tuple(lines) == NOT_ISOLATED
    assert last == "not enforced: `memory`, `disk`"
    text = " ".join(lines)
    for word in ("trust", "your user", "files", "tokens", "ports", "CPUs", "memory", "disk", "GPU"):
        assert word in text
    assert not plan(a_class(2, 1), a_host(box(2)), 1).is_local


def test_a_class_of_processes_without_limits_promises_none() -> None:
    found = locally(a_class(cpus=None, memory=None, disk=None))
    assert found.notices == NOT_ISOLATED


def test_the_json_of_a_class_of_processes_has_no_networks() -> None:
    found = json.loads(json.dumps(locally(a_class(1)).to_json()))
    assert found["backend"] == "local"
    assert found["proxy_network"] is None
    assert found["seats"][0]["network"] is None
    assert found["notices"][0].startswith("without Docker, seats are not isolated")


def test_a_class_of_processes_has_no_queue() -> None:
    for host in (a_host(box(2)), a_host(NO_GPUS)):
        with pytest.raises(ConfigError) as caught:
            locally(a_class(2, {"queue": True}), host)
        assert caught.value.problems == [
            "seat.gpus.queue: the queue for GPUs needs Docker; leave out `--backend local`, or use "
            "`gpus: {count: 1, share: true}`"
        ]
    with pytest.raises(ConfigError) as caught:
        locally(a_class(2, cpu_runs=2))
    assert caught.value.problems == [
        "cpu_runs: the queue for runs without GPUs needs Docker; leave out `--backend local`, or "
        "this key"
    ]


@pytest.mark.parametrize(
    ("seats", "count", "problem"),
    [
        (
            3,
            1,
            "seat.gpus: 3 seats with 1 GPU each need 3 GPUs, this host has 2; use "
            "`gpus: {count: 1, share: true}`, or 2 seats at most",
        ),
        (1, 3, "seat.gpus: a seat needs 3 GPUs, this host has 2; use `count: 2` or less"),
    ],
)
def test_a_shortage_of_a_class_of_processes_does_not_advise_the_queue(
    seats: int, count: int, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        locally(a_class(seats, count), a_host(box(2)))
    assert caught.value.problems == [problem]


def test_a_class_of_processes_takes_no_networks() -> None:
    used = a_host(networks=(IPv4Network("10.89.0.0/16"),))
    with pytest.raises(ConfigError):
        plan(a_class(), used)
    assert locally(a_class(), used).is_local


# ---- Any class on any host

own = st.integers(0, 3) | st.fixed_dictionaries(
    {"count": st.integers(1, 3)}, optional={"mig": st.booleans()}
)
shared = st.fixed_dictionaries(
    {"count": st.integers(1, 3), "share": st.just(True)}, optional={"mig": st.booleans()}
)
queues = st.fixed_dictionaries({"queue": st.just(True)}, optional={"mig": st.booleans()})
classes = st.builds(
    a_class,
    seats=st.integers(1, 6) | st.integers(1, 31),
    gpus=own | shared | queues,
    cpus=st.none() | st.integers(1, 64),
    memory=st.none() | st.sampled_from(["512MiB", "4GiB"]),
    network=st.sampled_from(["10.89.0.0/16", "10.89.0.0/23", "192.168.0.0/23"]),
)
used_networks = st.lists(
    st.sampled_from(["10.89.1.0/24", "192.168.1.0/24", "172.17.0.0/16"]), max_size=2
).map(lambda texts: tuple(map(IPv4Network, texts)))
hosts = st.builds(
    lambda whole, slices, networks: a_host(box(whole, slices=slices), networks=networks),
    st.integers(0, 12),
    st.integers(0, 7),
    used_networks,
)


@given(classes, hosts, st.integers(0, 1))
def test_no_gpu_has_two_owners_and_networks_are_disjoint(
    config: ClassConfig, host: HostFacts, needs: int
) -> None:
    try:
        found = plan(config, host, needs)
    except ConfigError as error:
        event("refused")
        assert error.problems
        return
    wanted = config.seat.gpus
    kind = host.inventory.slices if wanted.mig else host.inventory.whole_gpus
    usable = {gpu.device_id for gpu in kind}
    owners = Counter(each for seat in found.seats for each in seat.gpus)
    event(f"shared: {wanted.share}, queue: {wanted.queue}, GPUs: {bool(owners)}")
    assert set(owners) | set(found.queue_gpus) <= usable
    assert not (owners and found.queue_gpus)
    assert all(len(set(seat.gpus)) == wanted.count for seat in found.seats)
    if wanted.share:
        counts = [owners[each] for each in usable]
        assert max(counts) - min(counts) <= 1
    else:
        assert set(owners.values()) <= {1}
    networks = [found.proxy_network, *(seat.network for seat in found.seats), *found.run_networks]
    assert len(networks) == 1 + len(found.seats) + len(found.queue_gpus)
    assert all(each.prefixlen == 28 and each.subnet_of(config.network) for each in networks)
    assert not any(one.overlaps(other) for one, other in combinations(networks, 2))
    assert not any(each.overlaps(used) for each in networks for used in host.networks)
    assert plan(config, host, needs) == found
