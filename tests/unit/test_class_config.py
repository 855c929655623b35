"""Reading a class config: accepted values, and every error with its position."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from lab.classroom.config import LESSONS, ClassConfig, Times, load_class, parse_class
from lab.classroom.values import Address
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
domain: lab.example.org
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
    assert (config.name, len(config.seats)) == ("tf-workshop", 30)
    gpus = config.seat.gpus
    assert (gpus.count, gpus.share, gpus.mig, gpus.queue) == (1, True, False, False)
    assert (config.seat.cpus, config.seat.memory, config.seat.disk) == (1.5, 4 * 2**30, 5 * 2**30)
    assert config.lessons == ("async", "how_many")
    assert config.times.slice == timedelta(minutes=90)
    assert config.times.end == datetime(2026, 12, 1, 12).astimezone()
    assert config.network == IPv4Network("192.168.64.0/20")
    assert config.address == Address(IPv4Address("192.0.2.7"), 443)
    assert config.domain == "lab.example.org"
    assert str(parse(f'{SMALL}address: "[::1]:8000"\n').address) == "[::1]:8000"  # without `tls`
    # Paths begin at the directory of the file.
    assert config.cluster == Path("somewhere/clusters/book.yaml")
    assert config.tls is not None
    assert config.tls.certificate == Path("somewhere/cert.pem")
    assert config.tls.key == Path("/etc/key.pem")


def test_the_defaults() -> None:
    config = parse(SMALL)
    assert config.seats == ("seat-01", "seat-02")
    assert (config.seat.gpus.count, config.seat.gpus.queue) == (0, False)
    assert config.seat.cpus is config.seat.memory is config.seat.disk is None
    assert config.times == Times.model_construct(slice=timedelta(minutes=10))
    assert (str(config.network), str(config.address)) == ("10.89.0.0/16", "127.0.0.1:8000")
    assert (config.cluster, config.lessons, config.tls) == (Path("cluster.yaml"), LESSONS, None)
    assert config.domain is None


def test_the_names_of_seats() -> None:
    assert parse(SMALL.replace("2", "[ada, grace-2]")).seats == ("ada", "grace-2")
    names = parse(SMALL.replace("2", "200")).seats
    assert (names[0], names[-1], len(set(names))) == ("seat-001", "seat-200", 200)


def test_lessons_are_the_notebooks() -> None:
    notebooks = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    assert tuple(path.stem[3:] for path in notebooks) == LESSONS


def test_a_class_in_the_past_is_valid() -> None:
    end = parse(f"{SMALL}times: {{end: 2020-01-01T09:00}}\n").times.end
    assert end is not None
    assert end < datetime.now(UTC)


ERRORS = [
    "gpu: 1",
    "setas: 1",
    "name: x",
    "seat: {gpsu: 1}",
    "seat: {gpus: {cuont: 1}}",
    "seat: {gpus: -1}",
    "seat: {gpus: all}",
    "seat: {gpus: {mig: 1}}",
    "seat: {gpus: {queue: true, share: true}}",
    "seat: {gpus: {queue: true, count: 1}}",
    "seat: {gpus: {share: true}}",
    "seat: {gpus: {count: 0, mig: true}}",
    "seat: {cpus: 0}",
    "seat: {memory: 4GB}",
    "seat: {disk: 5}",
    "cluster: [a]",
    r'cluster: "a\0"',
    "lessons: [asnyc]",
    "lessons: [sync, tour, sync]",
    "lessons: []",
    "times: {sart: 1}",
    "times: {start: 2026-12-01}",
    "times: {end: 2026-13-01T09:00}",
    "times: {start: 2026-12-01T09:00, end: 2026-12-01T09:00}",
    "times: {slice: 0s}",
    "times: {slice: 600}",
    "cpu_runs: 201",
    "tls: {key: k}",
    "tls: true",
    "address: 0.0.0.0:8000\ntls: {key: k}",  # the problem of `tls` itself is enough
    *(f'address: "{each}"' for each in ("0.0.0.0:8000", "192.0.2.1:80", "[::]:8000")),
]
NETWORKS = ["10.89.0.1/16", "10.89.0.0/29", "8.8.0.0/16", "127.0.0.0/8", "10.0.0.0", "fd00::/64"]
ADDRESSES = [
    *("127.0.0.1", "localhost:8000", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:8e3"),
    *("::1:8000", "[::1]", "[127.0.0.1]:80", "[fe80::1%eth0]:80", ":8000"),
]
DOMAINS = [
    *(
        "lab",
        "Lab.example.org",
        "lab.example.org.",
        "-a.example.org",
        "a-.example.org",
        "192.0.2.7",
    ),
    *("a_b.example.org", "https://lab.example.org", "lab.example.org:8443", "*.example.org", ""),
    *(f"{'a' * 64}.org", "a." * 100 + "org"),
]
TEXTS = [
    *(f"{SMALL}{each}\n" for each in ERRORS),
    *(f'{SMALL}network: "{each}"\n' for each in NETWORKS),
    *(f'{SMALL}address: "{each}"\n' for each in ADDRESSES),
    *(f'{SMALL}domain: "{each}"\n' for each in DOMAINS),
    *(SMALL.replace("2", seats) for seats in ("0", "201", "[]", "many", "[teacher]", "[resets]")),
    *(
        SMALL.replace(": w", f': "{name}"')
        for name in ("Workshop", "-a", "a-", "a" * 21, "a b", "")
    ),
    *("", f"{SMALL}---\n", "- 1", " " * (2**20 + 1)),
]


def test_each_error_is_one_line_with_its_position(snapshot: SnapshotAssertion) -> None:
    found = {text[:80]: problems(text) for text in TEXTS}
    assert {text: len(lines) for text, lines in found.items()} == dict.fromkeys(found, 1)
    assert found == snapshot


def test_all_problems_are_reported_at_once() -> None:
    text = "version: 2\nseats: [ada, Bob, ada]\nseat: {gpus: x}\naddress: 0.0.0.0:1\nlessons: [x]\n"
    assert [line.split(":")[3].strip() for line in problems(text)] == [
        *("name", "version", "seats[1]", "seats[2]", "seat.gpus", "address", "lessons[0]"),
    ]
    assert "class.yaml:2:19: seats[2]: a second seat has the name ada; give each" in "\n".join(
        problems(text)
    )


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
        "domain",
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
        assert parse(text).seats
    except ConfigError as error:
        assert all(line.startswith("class.yaml:1:") for line in error.problems)
