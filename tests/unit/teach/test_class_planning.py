"""What each seat of a class gets, and every shortage of a host."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from lab.base.errors import ConfigError
from lab.base.units import GIB
from lab.cluster.gpu import Inventory, Process
from lab.teach.classroom.config import ClassConfig, Tls
from lab.teach.classroom.planning import HostFacts
from tests.golden.boxes import box, mig_of, uuid_of, wired
from tests.support.classes import NO_GPUS, a_class, a_host, plan
from tests.support.shown import assert_shows


def shortages(config: ClassConfig, host: HostFacts | None = None, needs: object = 0) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        plan(config, host, needs)
    assert caught.value.exit_code == 2
    return caught.value.problems


QUEUE = {"queue": True}


@pytest.mark.parametrize(
    ("config", "host", "expected"),
    [
        (a_class(2, 1), box(2, slices=3), [[uuid_of(0)], [uuid_of(1)]]),
        (a_class(2, 2), box(), [[uuid_of(0), uuid_of(1)], [uuid_of(2), uuid_of(3)]]),
        (a_class(2, 1), box(0, slices=3), [[mig_of(0)], [mig_of(1)]]),
        (a_class(3, QUEUE), box(2), [[], [], [], [uuid_of(0), uuid_of(1)]]),
        (a_class(1, QUEUE), box(0, slices=3), [[], list(map(mig_of, range(3)))]),
    ],
)  # fmt: skip
def test_the_gpus_of_the_seats_and_of_the_queue(
    config: ClassConfig, host: Inventory, expected: list[list[str]]
) -> None:
    found = plan(config, a_host(host))
    of_queue = [list(found.queue_gpus)] if found.queue_gpus else []
    assert [*(list(seat.gpus) for seat in found.seats), *of_queue] == expected


def test_each_seat_has_its_limits_and_the_next_network() -> None:
    limits = {"cpus": 1.5, "memory": "2GiB", "disk": "3GiB"}
    found = plan(a_class(["ada", "bob"], QUEUE, cpu_runs=1, **limits), a_host(box(1)))
    assert list(msgspec.to_builtins(found, enc_hook=str)["seats"]) == [
        {
            "name": name, "gpus": (), "network": network,
            "cpus": 1.5, "memory_bytes": 2 * GIB, "disk_bytes": 3 * GIB,
        }
        for name, network in (("ada", "10.89.0.16/28"), ("bob", "10.89.0.32/28"))
    ]  # fmt: skip
    assert str(found.proxy_network) == "10.89.0.0/28"
    assert list(map(str, found.run_networks)) == ["10.89.0.48/28", "10.89.0.64/28"]
    assert (found.address, found.port) == ("127.0.0.1", 8000)


def test_the_gpus_of_a_seat_are_close() -> None:
    linked = wired((0, 0, 0, 0), {(0, 2): 4, (1, 3): 4})
    found = plan(a_class(2, 2), a_host(linked), 2)
    assert {frozenset(seat.gpus) for seat in found.seats} == {
        frozenset({uuid_of(0), uuid_of(2)}),
        frozenset({uuid_of(1), uuid_of(3)}),
    }


first, *others = box(2).gpus
IN_USE = Inventory(
    "uuid",
    (replace(first, processes=(Process(4711, "python", 3 * GIB),)), *others),
    64,
    512 * GIB,
    notices=("from the driver",),
)
TLS = {"certificate": "c.pem", "key": "k.pem"}
CPUS = a_host(NO_GPUS)
UNKNOWN = a_host(Inventory("index", box(8).gpus, None, None), disk_free_bytes=None)
USED = "warning: GPU 0 \\(GPU-0.*, {}\\) is in use: python \\(pid 4711, 3 GiB\\)$"
ONE_ADDRESS = "all seats share one address: .*as any student.*give each seat a name with `domain:`$"
ONLY_HERE = (
    "only browsers on this host reach http://w.localhost:8000; to let others in, set `address`"
)
NO_LIMIT = "no limit on {}: one seat can use up the whole host$"
TURNS = "{} take turns on {}: `lab run --backend class`, 10 min at most$"


@pytest.mark.parametrize(
    ("config", "host", "needs", "notices"),
    [
        (a_class(20, cpus=64, memory="64GiB", disk="1TiB"), UNKNOWN, 0, []),
        (a_class(2), a_host(IN_USE), 2, []),
        (a_class(2, 1), a_host(IN_USE), 1, ["from the driver$", USED.format("seat-01")]),
        (
            a_class(3, QUEUE), a_host(IN_USE), 2,
            ["from", TURNS.format("3 seats", "2 GPUs"), USED.format("queue")],
        ),
        (a_class(2, QUEUE), a_host(), 0, [TURNS.format("2 seats", "8 GPUs")]),
        (a_class(2, QUEUE, cpu_runs=3), a_host(box(2)), 1, ["2 seats take turns on 2 GPUs"]),
        (a_class(30, cpus=1.5, memory="64MiB"), CPUS, 0, []),
        (a_class(2, address="192.0.2.7:8443", tls=TLS), CPUS, 0, [ONE_ADDRESS]),
        (a_class(2), a_host(disk_unenforced=""), 0, []),
        (a_class(2), a_host(disk_unenforced="why"), 0, ["disk: not enforced: why$"]),
        (a_class(2, disk=None), a_host(disk_unenforced=""), 0, [NO_LIMIT.format("disk")]),
        (
            a_class(2, cpus=None, memory=None, disk=None), CPUS, 0,
            [NO_LIMIT.format("CPUs, memory, disk")],
        ),
    ],
)  # fmt: skip
def test_each_plan_reports_what_the_teacher_may_not_expect(
    config: ClassConfig, host: HostFacts, needs: int, notices: list[str]
) -> None:
    found = plan(config, host, needs)
    expected = [ONLY_HERE] * config.address.host.is_loopback + notices
    for notice, pattern in zip(found.notices, expected, strict=True):
        assert re.match(pattern, notice)
    assert found.disk_enforced is (host.disk_unenforced == "" and config.seat.disk is not None)


SMALLER = "name a smaller config, such as clusters/book.yaml"


@pytest.mark.parametrize(
    ("config", "host", "needs", "problems"),
    [
        (
            a_class(3, 1), NO_GPUS, 1,
            [r"seat.gpus: this host has no GPU \(no NVIDIA driver\); use `gpus: 0`"],
        ),
        (
            a_class(2, 2), box(0, slices=3), 1,
            [".* 2 seats with 2 GPUs each need 4 GPUs, this host has 3; let "],
        ),
        (
            a_class(2, QUEUE, cpu_runs=1, memory="3GiB"), box(2, memory_bytes=12 * GIB), 1,
            [".*2 seats and 3 runs .* need 15 GiB.* 12 GiB of memory; lower `memory`, or use"],
        ),
        (
            a_class(2, 1), box(), [uuid_of(3)],
            ["cluster: nodes.a.gpus in cluster.yaml names a GPU by its UUID, .* state a number"],
        ),
        (
            a_class(30, 1, cpus=5, memory="4GiB", disk="5GiB"),
            box(1, cpus=4, memory_bytes=16 * GIB), 2,
            [
                "seat.gpus: 30 seats with 1 GPU each need 30 GPUs, this host has 1; let ",
                f"cluster: cluster.yaml needs 2 GPUs, but a seat has 1; {SMALLER}$",
                "seat.cpus: a seat needs 5 CPUs, but this host has 4; lower `cpus`$",
                "seat.memory: 30 seats with 4 GiB each need 120 GiB, this host has 16 GiB of mem",
                "seat.disk: 30 seats .* need 150 GiB, this host has 100 GiB of free disk space",
            ],
        ),
        (
            a_class(30, QUEUE, memory="4GiB", network="10.89.0.0/23"),
            box(2, memory_bytes=GIB), 3,
            [
                f"cluster: cluster.yaml needs 3 GPUs, but the queue has 2; {SMALLER}$",
                "seat.memory: 30 seats and 2 runs of the queue with 4 GiB each need 128 GiB, this",
                "network: 30 seats and 2 runs of the queue need 33 networks of /28 with that of the"
                " proxy, and 10.89.0.0/23 has 32; use a range of /22$",
            ],
        ),
    ],
)  # fmt: skip
def test_all_shortages_of_a_host_are_reported(
    config: ClassConfig, host: Inventory, needs: object, problems: list[str]
) -> None:
    for problem, pattern in zip(shortages(config, a_host(host), needs), problems, strict=True):
        assert re.match(pattern, problem)


def test_the_page_shows_a_shortage() -> None:
    assert_shows("docs/how-to/class-run.md", "seat.gpus: ", *shortages(a_class(30, 1), needs=1))


@pytest.mark.parametrize(
    ("address", "domain", "tls", "url"),
    [
        ("127.0.0.1:8000", None, False, "http://w.localhost:8000"),
        ("127.0.0.1:80", None, False, "http://w.localhost"),
        ("127.0.0.1:443", None, False, "http://w.localhost:443"),
        ("127.0.0.1:8000", "lab.example.org", False, "http://lab.example.org:8000"),
        ("0.0.0.0:8443", "lab.example.org", True, "https://lab.example.org:8443"),
        ("192.0.2.7:443", "lab.example.org", True, "https://lab.example.org"),
        ("192.0.2.7:8443", None, True, "https://192.0.2.7:8443"),
    ],
)
def test_the_address_for_browsers(address: str, domain: str | None, tls: bool, url: str) -> None:
    more = ({"tls": TLS} if tls else {}) | ({"domain": domain} if domain else {})
    found = plan(a_class(address=address, **more))
    assert found.url == url
    assert ("only browsers on this host" in found.reach) is ("localhost" in url)
    one = not domain and tls
    assert ["all seats share one address" in " ".join(found.notices), not found.domain] == [one] * 2


def test_networks_of_the_host_are_not_taken() -> None:
    used = (IPv4Network("10.89.0.32/27"), IPv4Network("10.0.0.0/16"), IPv4Network("10.89.9.0/24"))
    assert shortages(a_class(2), a_host(networks=used)) == [
        "network: the class takes its networks from 10.89.0.0/28 on, and this host uses "
        "10.89.0.32/27; use another private range of this size"
    ]


def test_the_files_for_https_are_found_from_every_directory() -> None:
    tls = Tls.model_construct(certificate=Path("c.pem"), key=Path("/k.pem"))
    found = plan(a_class().model_copy(update={"tls": tls})).tls
    assert found == {"certificate": Path.cwd() / "c.pem", "key": Path("/k.pem")}
    assert plan(a_class()).tls is None


own = st.fixed_dictionaries({"count": st.integers(0, 3)})
queues = st.fixed_dictionaries({"queue": st.just(True)})
keys_of_classes = st.fixed_dictionaries(
    {
        "seats": st.integers(1, 6) | st.integers(20, 31),
        "gpus": own | queues,
        "cpus": st.none() | st.integers(1, 64),
        "memory": st.none() | st.sampled_from(["512MiB", "4GiB"]),
        "disk": st.none() | st.sampled_from(["512MiB", "10GiB"]),
        "network": st.sampled_from(["10.89.0.0/16", "10.89.0.0/23", "192.168.0.0/23"]),
    }
)
used_networks = st.lists(
    st.sampled_from(["10.89.1.0/24", "192.168.1.0/24", "172.17.0.0/16"]), max_size=2
).map(lambda texts: tuple(map(IPv4Network, texts)))
hosts = st.builds(
    lambda networks, **has: a_host(box(**has), networks=networks),
    used_networks,
    gpus=st.integers(0, 12),
    slices=st.integers(0, 7),
    cpus=st.sampled_from([4, 64]),
    memory_bytes=st.sampled_from([GIB, 16 * GIB, 512 * GIB]),
)


@given(keys_of_classes, hosts, st.integers(0, 1))
def test_no_gpu_has_two_owners_and_networks_are_disjoint(
    keys: dict[str, Any], host: HostFacts, needs: int
) -> None:
    config = a_class(**keys)
    try:
        found = plan(config, host, needs)
    except ConfigError as error:
        event("refused")
        assert error.problems
        return
    wanted = config.seat.gpus
    kind = host.inventory.whole_gpus or host.inventory.slices
    usable = {gpu.device_id for gpu in kind}
    owners = Counter(each for seat in found.seats for each in seat.gpus)
    event(f"queue: {wanted.queue}, GPUs: {bool(owners)}")
    assert set(owners) | set(found.queue_gpus) <= usable
    assert not (owners and found.queue_gpus)
    assert all(len(set(seat.gpus)) == wanted.count for seat in found.seats)
    assert set(owners.values()) <= {1}
    networks = [found.proxy_network, *(seat.network for seat in found.seats), *found.run_networks]
    assert len(networks) == 1 + len(found.seats) + len(found.queue_gpus)
    assert all(each.prefixlen == 28 and each.subnet_of(config.network) for each in networks)
    assert not any(one.overlaps(other) for one, other in combinations(networks, 2))
    assert not any(each.overlaps(used) for each in networks for used in host.networks)
    assert plan(config, host, needs) == found
