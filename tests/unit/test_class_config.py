"""Reading a class config: accepted values, and every error with its position."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.classroom.config import LESSONS, Address, ClassConfig, Times, load_class, parse_class
from lab.errors import ConfigError, InputError

ROOT = Path(__file__).parents[2]
SMALL = "version: 1\nname: w\nseats: 2\n"
FULL = """\
version: 1
name: tf-workshop
seats: 30
seat:
  gpus: {count: 1, share: true}
  cpus: 1.5
  memory: 4GiB
  disk: 5GiB
cluster: clusters/book.yaml
lessons: [async, how_many]
times: {start: 2026-12-01T09:00, end: 2026-12-01T12:00, slice: 1h30m}
network: 192.168.64.0/20
address: 192.0.2.7:443
tls: {certificate: cert.pem, key: /etc/key.pem}
"""


def parse(text: str) -> ClassConfig:
    return parse_class(text.encode(), "class.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.exit_code == 2
    return caught.value.problems


def test_every_key_is_read() -> None:
    config = parse_class(FULL.encode(), "somewhere/class.yaml")
    assert (config.name, len(config.seat_names)) == ("tf-workshop", 30)
    assert (config.seat.gpus.count, config.seat.gpus.share, config.seat.gpus.mig) == (
        1,
        True,
        False,
    )
    assert (config.seat.cpus, config.seat.memory, config.seat.disk) == (1.5, 4 * 2**30, 5 * 2**30)
    assert config.lessons == ("async", "how_many")
    assert config.times.slice == timedelta(minutes=90)
    assert config.times.end == datetime(2026, 12, 1, 12).astimezone()
    assert config.network == IPv4Network("192.168.64.0/20")
    assert config.address == Address(IPv4Address("192.0.2.7"), 443)


def test_paths_begin_at_the_directory_of_the_file() -> None:
    config = parse_class(FULL.encode(), "somewhere/class.yaml")
    assert config.cluster == Path("somewhere/clusters/book.yaml")
    assert config.tls is not None
    assert (config.tls.certificate, config.tls.key) == (
        Path("somewhere/cert.pem"),
        Path("/etc/key.pem"),
    )


def test_the_defaults() -> None:
    config = parse(SMALL)
    assert config.seat_names == ("seat-01", "seat-02")
    assert (config.seat.gpus.count, config.seat.gpus.queue) == (0, False)
    assert config.seat.cpus is config.seat.memory is config.seat.disk is None
    assert config.cluster == Path("cluster.yaml")
    assert config.lessons == LESSONS
    assert config.times == Times()
    assert (config.times.start, config.times.end, config.times.slice) == (
        None,
        None,
        timedelta(minutes=10),
    )
    assert (str(config.network), str(config.address), config.tls) == (
        "10.89.0.0/16",
        "127.0.0.1:8000",
        None,
    )


def test_the_names_of_seats() -> None:
    assert parse(SMALL.replace("2", "[ada, grace-2]")).seat_names == ("ada", "grace-2")
    names = parse(SMALL.replace("2", "200")).seat_names
    assert (names[0], names[-1], len(set(names))) == ("seat-001", "seat-200", 200)


@pytest.mark.parametrize(
    ("text", "count", "flags"),
    [
        ("2", 2, ""),
        ("{count: 1, mig: true}", 1, "mig"),
        ("{count: 2, share: true}", 2, "share"),
        ("{queue: true}", 0, "queue"),
        ("{queue: true, mig: true}", 0, "mig queue"),
    ],
)
def test_the_forms_of_gpus(text: str, count: int, flags: str) -> None:
    gpus = parse(f"{SMALL}seat: {{gpus: {text}}}\n").seat.gpus
    given = [name for name in ("mig", "share", "queue") if getattr(gpus, name)]
    assert (gpus.count, " ".join(given)) == (count, flags)


def test_lessons_are_the_notebooks() -> None:
    notebooks = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    assert tuple(path.stem[3:] for path in notebooks) == LESSONS


def test_a_class_in_the_past_is_valid_and_over() -> None:
    times = parse(f"{SMALL}times: {{end: 2020-01-01T09:00}}\n").times
    assert times.has_ended(datetime.now(UTC))
    assert not times.has_ended(datetime(2019, 12, 31, tzinfo=UTC))
    assert not Times().has_ended(datetime.now(UTC))


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1:8000", IPv4Address("127.0.0.1")),
        ('"[::1]:8000"', IPv6Address("::1")),
    ],
)
def test_an_address_of_this_host_alone_needs_no_tls(
    address: str, host: IPv4Address | IPv6Address
) -> None:
    found = parse(f"{SMALL}address: {address}\n").address
    assert (found.host, found.port) == (host, 8000)
    assert str(found) == address.strip('"')


def test_an_address_that_other_hosts_reach_needs_tls() -> None:
    for address in ("0.0.0.0:8000", "192.0.2.1:80", '"[::]:8000"'):
        shown = address.strip('"')
        assert problems(f"{SMALL}address: {address}\n") == [
            f"class.yaml:4:10: address: other hosts reach {shown}, and passwords must not travel "
            "in the clear; add `tls: {certificate: cert.pem, key: key.pem}`, or use 127.0.0.1"
        ]
    # The problem of `tls` itself is enough.
    assert problems(f"{SMALL}address: 0.0.0.0:8000\ntls: {{key: k}}\n") == [
        "class.yaml:5:1: tls.certificate: is missing"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "gpu: 1",
            "1: gpu: unknown key; known: version, name, seats, seat, cpu_runs, cluster, lessons, "
            "times, …",
        ),
        ("setas: 1", '1: setas: unknown key; did you mean "seats"?'),
        ("name: x", "1: name: the key is here twice; the first is on line 2"),
        ("seat: {gpsu: 1}", '8: seat.gpsu: unknown key; did you mean "gpus"?'),
        ("seat: {gpus: {cuont: 1}}", '15: seat.gpus.cuont: unknown key; did you mean "count"?'),
        ("times: {sart: 1}", '9: times.sart: unknown key; did you mean "start"?'),
        ("seat: {gpus: -1}", "14: seat.gpus: must be at least 0, not -1"),
        (
            "seat: {gpus: all}",
            "14: seat.gpus: must be a number, such as 1, or a mapping, such as "
            '{count: 1, share: true}; not the text "all"',
        ),
        ("seat: {gpus: {mig: 1}}", "20: seat.gpus.mig: must be true or false, not the number 1"),
        (
            "seat: {gpus: {queue: true, share: true}}",
            "35: seat.gpus.share: seats in the queue take turns, so they do not share; "
            "remove one of the two",
        ),
        (
            "seat: {gpus: {queue: true, count: 1}}",
            "35: seat.gpus.count: seats in the queue hold no GPU; remove `count` or `queue`",
        ),
        (
            "seat: {gpus: {share: true}}",
            "22: seat.gpus.share: a seat has no GPU; state `count`, such as `count: 1`",
        ),
        (
            "seat: {gpus: {count: 0, mig: true}}",
            "30: seat.gpus.mig: a seat has no GPU; state `count`, such as `count: 1`",
        ),
        ("seat: {cpus: 0}", "14: seat.cpus: must be more than 0, not 0"),
        (
            "seat: {memory: 4GB}",
            "16: seat.memory: must be an amount such as 8GiB or 512MiB, from 64MiB to 64TiB; "
            'not the text "4GB"',
        ),
        (
            "seat: {disk: 5}",
            "14: seat.disk: must be an amount such as 5GiB or 512MiB, from 64MiB to 64TiB; "
            "not the number 5",
        ),
        ("cluster: [a]", "10: cluster: must be the path of a file; not a list"),
        (r'cluster: "a\0"', r'10: cluster: must be the path of a file; not the text "a\x00"'),
        ("lessons: [asnyc]", '11: lessons[0]: there is no lesson asnyc; did you mean "async"?'),
        (
            "lessons: [sync, tour, sync]",
            "23: lessons[2]: the lesson sync is here twice; remove one",
        ),
        ("lessons: []", "10: lessons: is empty; it needs at least one entry"),
        (
            "times: {start: 2026-12-01}",
            "16: times.start: must be a local time such as 2026-12-01T09:00; "
            'not the text "2026-12-01"',
        ),
        (
            "times: {end: 2026-13-01T09:00}",
            "14: times.end: must be a local time such as 2026-12-01T09:00; "
            'not the text "2026-13-01T09:00"',
        ),
        (
            "times: {start: 2026-12-01T09:00, end: 2026-12-01T09:00}",
            "39: times.end: is not after the start, 2026-12-01T09:00",
        ),
        (
            "times: {slice: 0s}",
            "16: times.slice: must be a duration such as 10m or 1h30m, from 1s to 24h; "
            'not the text "0s"',
        ),
        (
            "times: {slice: 600}",
            "16: times.slice: must be a duration such as 10m or 1h30m, from 1s to 24h; "
            "not the number 600",
        ),
        (
            "network: 10.89.0.0/27",
            "10: network: 2 seats and the proxy need 3 networks of /28, and 10.89.0.0/27 has 2; "
            "use a range of /26",
        ),
        (
            "network: 10.89.0.0/26\ncpu_runs: 2",
            "10: network: 2 seats, 2 runs of the queue and the proxy need 5 networks of /28, and "
            "10.89.0.0/26 has 4; use a range of /25",
        ),
        ("cpu_runs: 201", "11: cpu_runs: must be at most 200, not 201"),
        ("tls: {key: k}", "1: tls.certificate: is missing"),
        ("tls: true", "6: tls: must be a mapping, not true"),
    ],
)
def test_the_errors_of_a_key(text: str, expected: str) -> None:
    assert problems(f"{SMALL}{text}\n") == [f"class.yaml:4:{expected}"]


@pytest.mark.parametrize(
    "network",
    ["10.89.0.1/16", "10.89.0.0/29", "8.8.0.0/16", "127.0.0.0/8", "10.0.0.0", "fd00::/64", "x"],
)
def test_a_network_is_private_and_of_ipv4(network: str) -> None:
    assert problems(f'{SMALL}network: "{network}"\n') == [
        "class.yaml:4:10: network: must be a private IPv4 network such as 10.89.0.0/16, of /28 or "
        f'larger; not the text "{network}"'
    ]


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "localhost:8000", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:8e3"),
        *("::1:8000", "[::1]", "[127.0.0.1]:80", "[fe80::1%eth0]:80", ":8000"),
    ],
)
def test_an_address_has_an_ip_address_and_a_port(address: str) -> None:
    assert problems(f'{SMALL}address: "{address}"\n') == [
        "class.yaml:4:10: address: must be an IP address and a port, such as 127.0.0.1:8000 or "
        f'[::1]:8000; not the text "{address}"'
    ]


@pytest.mark.parametrize(
    ("seats", "expected"),
    [
        ("0", "must be at least 1, not 0"),
        ("201", "must be at most 200, not 201"),
        ("[]", "is empty; it needs at least one entry"),
        (
            "many",
            "must be a number, such as 30, or a list of names, such as [ada, grace]; "
            'not the text "many"',
        ),
    ],
)
def test_the_number_of_seats(seats: str, expected: str) -> None:
    assert problems(SMALL.replace("2", seats)) == [f"class.yaml:3:8: seats: {expected}"]


@pytest.mark.parametrize("name", ["Workshop", "-a", "a" * 21, "a b", ""])
def test_the_name_of_a_class(name: str) -> None:
    (problem,) = problems(SMALL.replace("name: w", f'name: "{name}"'))
    assert problem == (
        "class.yaml:2:7: name: must be lower-case letters, digits and hyphens, at most 20, "
        f'no hyphen first; not the text "{name}"'
    )


def test_all_problems_are_reported_at_once() -> None:
    text = "version: 2\nseats: [ada, Bob, ada]\nseat: {gpus: x}\naddress: 0.0.0.0:1\nlessons: [x]\n"
    assert [line.split(":")[3].strip() for line in problems(text)] == [
        *("name", "version", "seats[1]", "seats[2]", "seat.gpus", "address", "lessons[0]"),
    ]
    assert "class.yaml:2:19: seats[2]: a second seat has the name ada; give each" in "\n".join(
        problems(text)
    )


def test_a_file_that_is_no_class() -> None:
    assert problems("")[0] == (
        "class.yaml:1:1: the file is empty; copy the example of docs/teach.md and change it"
    )
    assert problems(SMALL + "---\n")[0] == (
        "class.yaml:4:1: a second document; write one class per file"
    )
    assert problems("- 1") == ["class.yaml:1:1: must be a mapping (`version: 1`, …), not a list"]
    assert problems(" " * (2**20 + 1)) == [
        "class.yaml:1:1: the file is larger than 1 MiB; is it a class config?"
    ]


def test_a_missing_file_is_named_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "class.yaml"
    with pytest.raises(InputError, match=r"there is no file .*; name a class config with `--file"):
        load_class(path)
    path.write_text(SMALL)
    assert load_class(path).cluster == tmp_path / "cluster.yaml"


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.from_regex(r"[0-9]{1,4}[a-zA-Z:./-]{1,4}[0-9]{0,4}", fullmatch=True)
    | st.sampled_from(["10.89.0.0/16", "9999-12-31T23:59", "0001-01-01T00:00", "99999h", "[::]:1"])
)
keys = st.sampled_from(
    [
        *("version", "name", "seats", "seat", "cluster", "lessons", "times", "network", "address"),
        *("tls", "gpus", "count", "share", "queue", "mig", "cpus", "memory", "disk", "start", "x"),
        *("end", "slice", "certificate", "key"),
    ]
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(keys, values, max_size=10))
def test_any_values_give_a_class_or_problems(file: dict[str, object]) -> None:
    text = json.dumps({"version": 1, "name": "w", "seats": 2} | file)
    try:
        assert parse(text).seat_names
    except ConfigError as error:
        assert all(line.startswith("class.yaml:1:") for line in error.problems)
