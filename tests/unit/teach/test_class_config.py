"""Reading a class config: accepted values, every error with its position, and the page."""

from __future__ import annotations

import json
import re
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.base.errors import ConfigError, InputError
from lab.base.text import visible
from lab.base.units import MIB, memory_for_people
from lab.cluster.gpu import another_host
from lab.teach.classroom.config import Address, ClassConfig, load_class, parse_class
from tests.support.classes import a_host, plan

ROOT = Path(__file__).parents[3]
SMALL = "version: 1\nname: w\nseats: 2\n"
FULL = """\
version: 1
name: tf-workshop
seats: 30
seat:
  gpus: {count: 1}
  cpus: 1.5
  memory: 4GiB
  disk: 5GiB
cluster: clusters/book.yaml
slice: 1h30m
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
    assert (gpus.count, gpus.queue) == (1, False)
    assert (config.seat.cpus, config.seat.memory, config.seat.disk) == (1.5, 4 * 2**30, 5 * 2**30)
    assert config.slice == 5400
    assert config.network == IPv4Network("192.168.64.0/20")
    assert config.address == Address(IPv4Address("192.0.2.7"), 443)
    assert config.domain == "lab.example.org"
    assert str(parse(f"{SMALL}address: 127.0.0.2:80\n").address) == "127.0.0.2:80"  # without `tls`
    # Paths begin at the directory of the file.
    assert config.cluster == Path("somewhere/clusters/book.yaml")
    assert config.tls.certificate == Path("somewhere/cert.pem")
    assert config.tls.key == Path("/etc/key.pem")


def test_the_defaults() -> None:
    config = parse(SMALL)
    assert config.seats == ("seat-01", "seat-02")
    assert (config.seat.gpus.count, config.seat.gpus.queue) == (0, False)
    assert config.seat.cpus is config.seat.memory is config.seat.disk is None
    assert config.slice == 600
    assert (str(config.network), str(config.address)) == ("10.89.0.0/16", "127.0.0.1:8000")
    assert (config.cluster, config.tls) == (Path("cluster.yaml"), None)
    assert config.domain is None


def test_the_names_of_seats() -> None:
    assert parse(SMALL.replace("2", "[ada, grace-2]")).seats == ("ada", "grace-2")
    names = parse(SMALL.replace("2", "200")).seats
    assert (names[0], names[-1], len(set(names))) == ("seat-001", "seat-200", 200)
    (problem,) = problems(SMALL.replace("2", "[]"))
    assert problem.endswith("seats: is empty; it needs at least one entry")


OTHERS_REACH = (
    "address: other hosts reach {}, and passwords must not travel in the clear; add "
    "`tls: {{certificate: cert.pem, key: key.pem}}`, or use 127.0.0.1"
).format
TLS = "tls: {certificate: c, key: k}\n"
MISTAKES = {
    "^setas: 1": 'setas: unknown key; did you mean "seats"?',
    "^name: x": "name: duplicate key; the first is on line 2",
    "seat: {gpus: {^cuont: 1}}": 'seat.gpus.cuont: unknown key; did you mean "count"?',
    "seat: {gpus: ^-1}": "seat.gpus: must be at least 0, not -1",
    "seat: {gpus: {queue: ^1}}": "seat.gpus.queue: must be true or false, not the number 1",
    "seat: {gpus: {queue: true, count: ^1}}": "seat.gpus.count: seats in the queue hold no GPU; "
    "remove `count` or `queue`",
    "seat: {cpus: ^0}": "seat.cpus: must be more than 0, not 0",
    "cpu_runs: ^201": "cpu_runs: must be at most 200, not 201",
    "^tls: {key: k}": "tls.certificate: is missing",
    "tls: ^true": "tls: must be a mapping, not true",
    # The problem of `tls` itself is enough.
    "address: 0.0.0.0:8000\n^tls: {key: k}": "tls.certificate: is missing",
    'address: ^"0.0.0.0:8000"': OTHERS_REACH("0.0.0.0:8000"),
    f'{TLS}address: ^"0.0.0.0:80"': "address: browsers need one address; name that of this "
    "host, or add `domain`",
    'address: ^"192.0.2.1:80"': OTHERS_REACH("192.0.2.1:80"),
    "^---": "a second document; write one config per file",
}
"""What may be wrong in a class, with a mark before the place, and the message."""

SEATS = {
    f"seats: [^{name}]": f"seats[0]: the class itself uses the name {name}; give the seat another "
    "name"
    for name in ("teacher", "resets")
}
VALUES: dict[str, tuple[str, list[object]]] = {
    "name": (
        "lower-case letters, digits and hyphens, at most 20, no hyphen at an end",
        ["Workshop", "-a", "a-", "a" * 21, "a b", ""],
    ),
    "seats": (
        "a number from 1 to 200, such as 30, or a list of names, such as [ada, grace]",
        [0, 201, "many"],
    ),
    "seat.gpus": ("a number, such as 1, or {queue: true}", ["all"]),
    "seat.memory": ("an amount such as 8GiB or 512MiB, from 64MiB to 64TiB", ["4GB"]),
    "seat.disk": ("an amount such as 8GiB or 512MiB, from 64MiB to 64TiB", [5]),
    "cluster": ("the path of a file", [1]),
    "slice": ("a duration such as 10m or 1h30m, from 1s to 24h", ["0s", 600]),
    "network": (
        "a private IPv4 network such as 10.89.0.0/16, of /28 or larger",
        ["10.89.0.1/16", "10.89.0.0/29", "8.8.0.0/16", "127.0.0.0/8", "10.0.0.0", "fd00::/64"],
    ),
    "address": (
        "an IPv4 address and a port, such as 127.0.0.1:8000",
        [
            *("127.0.0.1", "localhost:8000", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:8e3"),
            *("[::1]:8000", "[127.0.0.1]:80", "999.0.0.1:80", ":8000"),
        ],
    ),
    "domain": (
        "a DNS name in lower-case letters, such as lab.example.org",
        [
            *("lab", "Lab.example.org", "lab.example.org.", "-a.example.org", "a-.example.org"),
            *("192.0.2.7", "a_b.example.org", "https://lab.example.org", "lab.example.org:8443"),
            *("*.example.org", "", f"{'a' * 64}.org", "a." * 100 + "org"),
        ],
    ),
}
"""What each key must be, and values that are not."""


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        *((f"{SMALL}{each}\n", message) for each, message in MISTAKES.items()),
        *((SMALL.replace("seats: 2", each), message) for each, message in SEATS.items()),
        ("^", "the file is empty; begin with an example from docs/reference"),
        ("^- 1", "must be a mapping (`version: 1`, …), not a list"),
        pytest.param("^" + " " * 2**21, "the file is larger than 1 MiB; is it a config?", id="big"),
    ],
)
def test_a_mistake_is_one_line_with_its_position(marked: str, message: str) -> None:
    before, _, after = marked.partition("^")
    where = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
    assert problems(before + after) == [f"class.yaml:{where}: {message}"]


@pytest.mark.parametrize(
    ("key", "expected", "value"),
    [(key, expected, each) for key, (expected, values) in VALUES.items() for each in values],
)
def test_a_wrong_value_is_named_with_what_is_expected(
    key: str, expected: str, value: object
) -> None:
    part, last = key.rpartition(".")[::2]
    changed = {part: {last: value}} if part else {last: value}
    (line,) = problems(json.dumps({"version": 1, "name": "w", "seats": 2} | changed))
    kind = f'string "{visible(value)[:40]}' if isinstance(value, str) else f"number {value}"
    assert f": {key}: must be {expected}; not the {kind}" in line


def test_all_problems_are_reported_at_once() -> None:
    types = "version: 2\nseats: [ada, Bob]\nseat: {gpus: x}\n"
    rules = "version: 1\nname: w\nseats: [ada, ada]\naddress: 0.0.0.0:1\n"
    for text, keys in (
        (types, ("name", "version", "seats[1]", "seat.gpus")),
        (rules, ("seats[1]", "address")),
    ):
        assert tuple(line.split(":")[3].strip() for line in problems(text)) == keys


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
        *("version", "name", "seats", "seat", "cluster", "slice", "network", "address"),
        "domain",
        *("tls", "gpus", "count", "queue", "cpus", "memory", "disk", "x"),
        *("certificate", "key"),
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


def example() -> str:
    page = (ROOT / "docs/reference/class.md").read_text("utf-8")
    (text,) = re.findall(r"^```yaml\n(version: 1\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    return str(text)


def table(page: str, heading: str) -> dict[str, list[str]]:
    _, _, below = page.partition(heading)
    rows = re.match(r"(\n *\|.*)*", below).group().splitlines()[2:]
    cells = [[each.strip() for each in row.strip().strip("|").split("|")] for row in rows]
    return {first: others for first, *others in cells}


def test_what_the_page_says_the_example_needs() -> None:
    page = (ROOT / "docs/reference/class.md").read_text("utf-8")
    config = parse_class(example().encode(), "class.yaml")
    seat, seats, runs = config.seat, len(config.seats), 8 + config.cpu_runs
    assert seat.cpus and seat.memory and seat.disk
    heading = f"| | each | {seats} seats | {runs} runs of the queue | together |"
    counts = (1, seats, runs, seats + runs)
    disk = [memory_for_people(seat.disk * each) for each in (1, seats)]
    assert table(page, heading) == {
        "memory": [memory_for_people(seat.memory * each) for each in counts],
        "disk": [*disk, "that of their seats", disk[1]],
        "CPUs": [f"{seat.cpus * each:g}" for each in counts],
    }
    memory, cpus = memory_for_people(seat.memory * counts[-1]), f"{seat.cpus * counts[-1]:g}"
    words = f"needs {memory} of memory and {disk[1]} of free disk space, and {cpus} CPUs"
    assert words in " ".join((ROOT / "docs/how-to/class.md").read_text("utf-8").split())


def test_a_seat_of_the_example_has_the_memory_of_a_training() -> None:
    page = (ROOT / "docs/evidence/seats.md").read_text("utf-8")
    largest = table(page, "| what | figure |")["the largest during a training"][0]
    measured = int(largest.removesuffix(" MiB").replace(",", "")) * MIB
    memory = parse_class(example().encode(), "class.yaml").seat.memory
    assert memory is not None
    assert measured < memory


def test_every_key_is_documented_and_in_the_example() -> None:
    page = (ROOT / "docs/reference/class.md").read_text("utf-8")
    config = parse_class(example().encode(), "class.yaml")
    assert plan(config, a_host(another_host(8), disk_free_bytes=None))
    parts = {"seat": config.seat, "seat.gpus": config.seat.gpus}
    keys = set(type(config).model_fields)
    for name, part in (parts | {"tls": config.tls}).items():
        keys |= {f"{name}.{key}" for key in type(part).model_fields}
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", page, re.MULTILINE))
    assert documented == keys - {"seat", "tls"}
