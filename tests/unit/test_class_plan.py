"""What each seat of a class gets, and every shortage of a host."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from lab.classroom.config import ClassConfig, Tls
from lab.classroom.shortages import HostFacts
from lab.errors import ConfigError
from lab.gpu import Inventory, Process
from lab.units import GIB
from tests.golden.boxes import box, mig_of, uuid_of, wired
from tests.support.classes import NO_GPUS, a_class, a_host, plan
from tests.support.shown import assert_shows


def shortages(config: ClassConfig, host: HostFacts | None = None, needs: object = 0) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        plan(config, host, needs)
    assert caught.value.exit_code == 2
    return caught.value.problems


# ---- GPUs


first, *others = box(2).gpus
IN_USE = Inventory(
    "uuid",
    (replace(first, processes=(Process(4711, "python", 3 * GIB),)), *others),
    64,
    512 * GIB,
    notices=("from the driver",),
)
TLS = {"certificate": "c.pem", "key": "k.pem"}
CPUS, QUEUE = a_host(NO_GPUS), {"queue": True}
PLANS: dict[str, tuple[ClassConfig, HostFacts, int]] = {
    "whole GPUs": (a_class(3, 1), a_host(box(4)), 1),
    "whole GPUs beside MIG devices": (a_class(2, 1), a_host(box(2, slices=3)), 1),
    "MIG devices": (a_class(2, {"count": 1, "mig": True}), a_host(box(2, slices=3)), 0),
    "more GPUs than the cluster": (a_class(2, 2), a_host(), 1),
    "GPUs without use": (a_class(2, 1), a_host(), 0),
    "CPUs for a cluster with GPUs": (a_class(2), a_host(), 2),
    "shared": (a_class(3, {"count": 1, "share": True}), a_host(IN_USE), 1),
    "queue": (a_class(["ada", "bob", "eve"], QUEUE), a_host(IN_USE), 2),
    "queue of MIG devices": (a_class(3, QUEUE | {"mig": True}), a_host(box(2, slices=3)), 1),
    "queue without use": (a_class(2, QUEUE), a_host(), 0),
    "queue with runs on CPUs": (a_class(2, QUEUE, cpu_runs=3), a_host(box(2)), 1),
    "runs on CPUs beside GPUs": (a_class(2, 1, cpu_runs=3), a_host(box(2)), 1),
    "runs on CPUs": (a_class(2, cpu_runs=1, cpus=1.5), CPUS, 0),
    "CPUs": (a_class(2), CPUS, 0),
    "one address": (a_class(2, address="192.0.2.7:8443", tls=TLS), CPUS, 0),
    "more CPUs than the host": (a_class(30, cpus=1.5, memory="512MiB"), CPUS, 0),
    "disk": (a_class(2), a_host(NO_GPUS, disk_unenforced=""), 0),
    "disk without a limit": (a_class(2, disk=None), a_host(NO_GPUS, disk_unenforced=""), 0),
    "disk not enforced": (a_class(2), a_host(NO_GPUS, disk_unenforced="only root can"), 0),
    "no limits": (a_class(2, cpus=None, memory=None, disk=None), a_host(disk_unenforced="x"), 0),
    "unknown host": (
        a_class(20, cpus=64, memory="64GiB", disk="1TiB"),
        a_host(Inventory("index", box(8).gpus, None, None), disk_free_bytes=None),
        0,
    ),
}


def test_each_plan_reports_what_the_teacher_may_not_expect(snapshot: SnapshotAssertion) -> None:
    found = {name: plan(*given) for name, given in PLANS.items()}
    assert {name: list(each.notices) for name, each in found.items()} == snapshot
    assert [name for name, each in found.items() if each.disk_enforced] == ["disk"]


@pytest.mark.parametrize(
    ("name", "count", "indices"),
    [
        ("whole GPUs beside MIG devices", [1, 1], [0, 1]),
        ("more GPUs than the cluster", [2, 2], [0, 1, 2, 3]),
        ("shared", [1, 1, 1], [0, 1, 0]),
        ("queue", [0, 0, 0], []),
    ],
)
def test_the_gpus_of_the_seats(name: str, count: list[int], indices: list[int]) -> None:
    found = plan(*PLANS[name])
    assert [len(seat.gpus) for seat in found.seats] == count
    assert [gpu for seat in found.seats for gpu in seat.gpus] == [uuid_of(each) for each in indices]
    assert found.queue_gpus == ((uuid_of(0), uuid_of(1)) if name == "queue" else ())


def test_mig_devices_of_seats_and_of_the_queue() -> None:
    seats = plan(*PLANS["MIG devices"]).seats
    assert [seat.gpus for seat in seats] == [(mig_of(0),), (mig_of(1),)]
    assert plan(*PLANS["queue of MIG devices"]).queue_gpus == tuple(map(mig_of, range(3)))


def test_each_seat_has_its_limits_and_the_next_network() -> None:
    limits = {"cpus": 1.5, "memory": "2GiB", "disk": "3GiB"}
    found = plan(a_class(["ada", "bob"], {"queue": True}, cpu_runs=1, **limits), a_host(box(1)))
    assert list(found.to_json()["seats"]) == [
        {
            "name": name, "gpus": (), "network": network,
            "cpus": 1.5, "memory_bytes": 2 * GIB, "disk_bytes": 3 * GIB,
        }
        for name, network in (("ada", "10.89.0.16/28"), ("bob", "10.89.0.32/28"))
    ]  # fmt: skip
    assert str(found.proxy_network) == "10.89.0.0/28"
    assert list(map(str, found.run_networks)) == ["10.89.0.48/28", "10.89.0.64/28"]
    assert (found.address, found.port) == ("127.0.0.1", 8000)


@pytest.mark.parametrize("share", [False, True])
def test_the_gpus_of_a_seat_are_close(*, share: bool) -> None:
    linked = wired((0, 0, 0, 0), {(0, 2): 4, (1, 3): 4})
    found = plan(a_class(2, {"count": 2, "share": share}), a_host(linked), 2)
    assert {frozenset(seat.gpus) for seat in found.seats} == {
        frozenset({uuid_of(0), uuid_of(2)}),
        frozenset({uuid_of(1), uuid_of(3)}),
    }


SHORTAGES = {
    "few": (a_class(30, 1), box(), 1),
    "few MIG devices": (a_class(2, {"count": 2, "mig": True}), box(8, slices=3), 1),
    "more than the host": (a_class(1, 9), box(), 1),
    "more than the host, shared": (a_class(3, {"count": 3, "share": True}), box(2), 1),
    "none": (a_class(3, 1), NO_GPUS, 1),
    "none for the queue": (a_class(3, {"queue": True}), NO_GPUS, 1),
    "only MIG devices": (a_class(1, 1), box(0, slices=7), 1),
    "no MIG device": (a_class(1, {"count": 1, "mig": True}), box(1), 1),
    "a larger cluster": (a_class(2, 1), box(), 8),
    "a larger cluster, queue": (a_class(2, {"queue": True}), box(2), 3),
    "a cluster with a UUID": (a_class(2, 1), box(), [uuid_of(3)]),
    "CPUs": (a_class(1, cpus=4.5), NO_GPUS, 0),
    "memory": (a_class(30, memory="4GiB"), NO_GPUS, 0),
    "memory of the runs": (a_class(2, QUEUE, memory="4GiB"), box(2, memory_bytes=8 * GIB), 1),
    "memory of one": (a_class(2, memory="20GiB"), NO_GPUS, 0),
    "memory and networks of runs": (
        a_class(2, {"queue": True}, cpu_runs=1, network="10.89.0.0/26", memory="3GiB"),
        box(2, memory_bytes=12 * GIB),
        1,
    ),
    "disk": (a_class(30, disk="5GiB"), box(), 0),
    "all": (
        a_class(30, 1, cpus=5, memory="4GiB", disk="5GiB", network="10.89.0.0/23"),
        box(1, cpus=4, memory_bytes=16 * GIB),
        2,
    ),
    "all, queue": (
        a_class(30, {"queue": True}, memory="4GiB", network="10.89.0.0/23"),
        box(2, memory_bytes=GIB),
        3,
    ),
}


def test_all_shortages_of_a_host_are_reported(snapshot: SnapshotAssertion) -> None:
    found = {
        name: shortages(config, a_host(host), needs)
        for name, (config, host, needs) in SHORTAGES.items()
    }
    assert found == snapshot
    keys = {name: [line.partition(":")[0] for line in lines] for name, lines in found.items()}
    assert keys["all"] == ["seat.gpus", "cluster", "seat.cpus", "seat.memory", "seat.disk"]
    assert_shows("docs/how-to/class-run.md", "seat.gpus: ", "\n".join(found["few"]))
    assert keys["all, queue"] == ["cluster", "seat.memory", "network"]


@pytest.mark.parametrize(
    ("address", "domain", "tls", "url"),
    [
        ("127.0.0.1:8000", None, False, "http://w.localhost:8000"),
        ("127.0.0.1:80", None, False, "http://w.localhost"),
        ("[::1]:443", None, False, "http://w.localhost:443"),
        ("127.0.0.1:8000", "lab.example.org", False, "http://lab.example.org:8000"),
        ("0.0.0.0:8443", "lab.example.org", True, "https://lab.example.org:8443"),
        ("192.0.2.7:443", "lab.example.org", True, "https://lab.example.org"),
        ("192.0.2.7:8443", None, True, "https://192.0.2.7:8443"),
        ("[2001:db8::1]:443", None, True, "https://[2001:db8::1]"),
    ],
)
def test_the_address_for_browsers(address: str, domain: str | None, tls: bool, url: str) -> None:
    more = ({"tls": TLS} if tls else {}) | ({"domain": domain} if domain else {})
    found = plan(a_class(address=address, **more))
    assert found.url == url
    one = not domain and tls
    assert ["all seats have one address" in " ".join(found.notices), not found.domain] == [one] * 2


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


def test_the_files_for_https_are_found_from_every_directory() -> None:
    tls = Tls.model_construct(certificate=Path("c.pem"), key=Path("/k.pem"))
    found = plan(a_class().model_copy(update={"tls": tls})).tls
    assert found is not None
    assert (found.certificate, found.key) == (Path.cwd() / "c.pem", Path("/k.pem"))
    assert plan(a_class()).tls is None


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
