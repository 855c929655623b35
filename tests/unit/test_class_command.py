"""`lab class`: its actions, and the checks of `lab class validate`."""

from __future__ import annotations

import json
import platform
import re
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from lab.backends.engine.info import EngineInfo, read_engine
from lab.backends.engine.kind import EngineKind
from lab.classroom import preparation as classroom
from lab.classroom.config import parse_class
from lab.errors import LabError
from lab.gpu import Inventory, chosen_host
from lab.units import MIB, memory_for_people
from tests.golden.boxes import box
from tests.support.classes import CERTIFICATE, CLASS, CLUSTER, KEY, plan
from tests.support.cli import lab, refused

ROOT = Path(__file__).parents[2]
ANOTHER_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgbmQlBMS9VG2ZShA7
eZgoT52trNQsGgGdHDh3CvvZmPOhRANCAASzzBOXxUlBymQNDL/JIl0k+HUsQ+PD
EhbLHiUCpnM4DD6eqapEREcgrUs1Otvuhyo4sOc59KNxUUSTyNWN5YHh
-----END PRIVATE KEY-----
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a class config and a cluster config."""
    (tmp_path / "class.yaml").write_text(CLASS)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host with two GPUs, a network and an engine."""
    info = {"Name": platform.node(), "DockerRootDir": str(tmp_path)}
    engine = EngineInfo(info, [IPv4Network("172.17.0.0/16")])
    monkeypatch.setattr(classroom, "chosen_host", lambda gpus: box(2))
    monkeypatch.setattr(classroom, "routes", lambda: [IPv4Network("10.0.0.0/24")])
    monkeypatch.setattr(classroom, "read_engine", lambda: engine)
    monkeypatch.setattr(classroom, "unavailable_reason", lambda: "only root can")


# ---- lab class validate

TLS = "tls: {certificate: c.pem, key: k.pem}\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "`lab class` needs ACTION; see `lab class --help`"),
        ("up --backend local", "no option '--backend' for `lab class`; see `lab class --help`"),
        ("valdate", "action: 'valdate' is not validate, up, status, board, time, handouts, reset"),
        ("validate --file no.yaml", "there is no file no.yaml; name a class config with `--file"),
    ],
)
def test_what_is_no_command(words: str, line: str, place: Path) -> None:
    assert refused(lab(place, "class", *words.split())).startswith(f"error: {line}")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "version: 1\nname: w\nsetas: 2\n",
            ["class.yaml:1:1: seats: is missing", "class.yaml:3:1: setas: unknown key; did you"],
        ),
        (f"{CLASS}cluster: bad.yaml\n", ['bad.yaml:5:1: prot: unknown key; did you mean "port"?']),
        (f"{CLASS}cluster: no.yaml\n", ["there is no file no.yaml; write it with `lab init`, or "]),
        (
            CLASS.replace("gpus: 1", "gpus: 2").replace("1GiB", "1TiB") + TLS,
            [
                "tls.certificate: there is no file c.pem; name another file with `certificate:`",
                "tls.key: there is no file k.pem; name another file with `key:`",
                "seat.gpus: 2 seats with 2 GPUs each need 4 GPUs, this host has 2; use ",
                "seat.memory: 2 seats with 1024 GiB each need 2048 GiB, this host has 512 GiB",
            ],
        ),
    ],
)
def test_all_problems_are_printed(text: str, problems: list[str], place: Path, host: None) -> None:
    (place / "class.yaml").write_text(text)
    (place / "bad.yaml").write_text(f"{CLUSTER}prot: 1\n")
    done, as_json = (lab(place, "class", "validate", *more) for more in ([], ["--json"]))
    lines = done.stderr.splitlines()
    assert [line[: len(each)] for line, each in zip(lines, problems, strict=True)] == problems
    assert (done.returncode, done.stdout) == (2, "")
    assert (as_json.returncode, as_json.stderr) == (2, done.stderr)
    found = json.loads(as_json.stdout)
    assert found == {"file": "class.yaml", "valid": False, "problems": lines}


def test_a_valid_class_is_shown_with_all_that_it_takes(place: Path, host: None) -> None:
    config = CLASS.replace("gpus: 1,", "gpus: {queue: true}, cpus: 0.5,") + "cpu_runs: 1\n"
    (place / "class.yaml").write_text(config)
    done, as_json = (lab(place, "class", "validate", *more) for more in ([], ["--json"]))
    assert (done.returncode, as_json.returncode, as_json.stderr) == (0, 0, "")
    planned = plan(parse_class(config.encode(), "class.yaml"), classroom.host_facts(box(2)), 1)
    shown = {"file": "class.yaml", "valid": True, "problems": [], **planned.to_json()}
    assert as_json.stdout == json.dumps(shown, indent=2) + "\n"
    assert done.stderr.splitlines() == [*planned.notices, "class.yaml: valid: w, 2 seats"]
    header, _, *rows = (line.split() for line in done.stdout.splitlines())
    assert header == ["seat", "gpus", "network", "cpus", "memory", "disk"]
    assert rows == [
        *([each.name, "none", str(each.network), "0.5", "1", "GiB"] for each in planned.seats),
        ["(proxy)", str(planned.proxy_network)],
        *(
            ["(queue)", gpu, str(network)]
            for gpu, network in zip(
                ("GPU-00000000", "GPU-00000001", "none"), planned.run_networks, strict=True
            )
        ),
    ]


def test_another_host_is_known_by_the_number_of_its_gpus(place: Path) -> None:
    done = lab(place, "class", "validate", "--gpus", "2")
    assert done.returncode == 0
    assert done.stderr.startswith(
        "another host: its CPUs, memory, disk and networks are not checked\n"
    )
    done = lab(place, "class", "validate", "--gpus", "1")
    assert (done.returncode, "need 2 GPUs, this host has 1; use" in done.stderr) == (2, True)


def test_a_class_without_gpus_does_not_query_the_driver(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | int] = []

    def noted(gpus: str | int) -> Inventory:
        asked.append(gpus)
        return chosen_host("none")

    monkeypatch.setattr(classroom, "chosen_host", noted)
    monkeypatch.setattr(classroom, "routes", list)
    (place / "class.yaml").write_text(CLASS.replace("gpus: 1, memory: 1GiB", "memory: 64MiB"))
    done = lab(place, "class", "validate")
    assert (done.returncode, asked) == (0, ["none"])
    assert done.stderr.splitlines()[:2] == [
        "no Docker engine answers: its disk and networks are not checked",
        "cluster.yaml asks for 1 GPU, and a seat has none: it trains on CPUs",
    ]


# ---- The facts of the host


def test_the_routes_of_the_host(tmp_path: Path) -> None:
    table = tmp_path / "route"
    table.write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "wg0\t00054D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    assert classroom.routes(table) == [IPv4Network("10.77.5.0/24")]


def test_the_free_bytes_of_a_directory_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert classroom.free_bytes(tmp_path / "not" / "yet") > 0
    assert not list(tmp_path.iterdir())


def test_an_engine_tells_its_networks_and_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    import docker  # noqa: PLC0415  (0.2 s, for this test only)

    subnets = [{"Subnet": "172.17.0.0/16"}, {"Subnet": "fd00::/64"}]
    networks = [{"IPAM": {"Config": subnets}}, {"IPAM": {"Config": None}}]
    client = SimpleNamespace(
        info=lambda: {"Name": platform.node(), "SecurityOptions": ["name=rootless"]},
        version=lambda: {"Components": [{"Name": "Podman Engine"}]},
        api=SimpleNamespace(networks=lambda: networks),
    )
    monkeypatch.setattr(docker, "from_env", lambda **_: client)
    engine = read_engine()
    assert engine.networks == [IPv4Network("172.17.0.0/16")]
    assert (engine.is_local, engine.kind) == (True, EngineKind(is_rootless=True, is_podman=True))
    assert engine.directory == Path("/var/lib/docker")


def test_the_networks_of_the_host_and_of_its_engine(host: None, notices: list[str]) -> None:
    found = classroom.host_facts(box(2))
    assert found.networks == (IPv4Network("10.0.0.0/24"), IPv4Network("172.17.0.0/16"))
    assert notices == []


@pytest.mark.parametrize(
    ("info", "unavailable", "reason", "free"),
    [
        ({"Name": platform.node()}, "", "", 8),
        ({"Name": platform.node()}, "only root can", "only root can", 5),
        (
            {"Name": platform.node(), "SecurityOptions": ["name=rootless"]}, "",
            "a rootless engine cannot mount a file system", 5,
        ),
        ({"Name": "elsewhere"}, "", "the engine runs on another host", None),
    ],
)  # fmt: skip
def test_limits_of_disks_are_not_enforced_for_a_reason(
    info: dict[str, object],
    unavailable: str,
    reason: str,
    free: int | None,
    monkeypatch: pytest.MonkeyPatch,
    host: None,
) -> None:
    def free_bytes(directory: Path) -> int:
        return (5 if directory.name == "volumes" else 9) * 10**9

    monkeypatch.setattr(classroom, "free_bytes", free_bytes)
    monkeypatch.setattr(classroom, "unavailable_reason", lambda: unavailable)
    monkeypatch.setattr(classroom, "read_engine", lambda: EngineInfo(info))
    found = classroom.host_facts(box(2))
    assert found.disk_unenforced == reason
    # The host keeps 1 GB of what seats can reserve.
    assert found.disk_free_bytes == (free and free * 10**9)


@pytest.mark.parametrize(
    "error", [LabError("reaching the engine: no answer", "start it"), TimeoutError("no answer")]
)
def test_a_host_without_an_engine(
    error: Exception, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    found = [IPv4Network("0.0.0.0/1"), IPv4Network("10.0.0.0/8")]
    monkeypatch.setattr(classroom, "routes", lambda: found)
    monkeypatch.setattr(classroom, "read_engine", mock.Mock(side_effect=error))
    facts = classroom.host_facts(box(2))
    assert (facts.disk_free_bytes, facts.networks) == (None, (IPv4Network("10.0.0.0/8"),))
    assert notices == ["no answer: its disk and networks are not checked"]


# ---- TLS


UNFIT = (
    "tls: c.pem and k.pem are not a certificate and its key without passphrase; write both as PEM"
)
READABLE = "tls.key: other users can read k.pem; run `chmod o= k.pem`"


@pytest.mark.parametrize(
    ("key", "mode", "problems"),
    [
        (KEY, 0o640, []),
        (KEY, 0o644, [READABLE]),
        *((each, 0o600, [UNFIT]) for each in (ANOTHER_KEY, CERTIFICATE, "", KEY.replace("A", "B"))),
    ],
    ids=["own", "readable", "another", "certificate", "empty", "damaged"],
)
def test_a_certificate_needs_its_private_key(
    key: str, mode: int, problems: list[str], place: Path
) -> None:
    assert problems_of_tls(place, key=key, mode=mode) == problems


@pytest.mark.parametrize(
    ("domain", "problems"),
    [
        ("lab.example.org", []),
        ("class.lab.example.org", ["ada.class.lab.example.org"]),
        ("example.org", ["example.org"]),
        ("ab.example.org", ["ab.example.org"]),
    ],
)
def test_a_certificate_is_valid_for_the_domain_and_each_seat(
    domain: str, problems: list[str], place: Path
) -> None:
    assert problems_of_tls(place, f"domain: {domain}\n") == [
        f"tls.certificate: c.pem is not valid for {each}; get one for {domain} and *.{domain}"
        for each in problems
    ]


def problems_of_tls(place: Path, more: str = "", *, key: str = KEY, mode: int = 0o600) -> list[str]:
    """The problems of the certificate and its key in a class that other hosts reach."""
    (place / "c.pem").write_text(CERTIFICATE)
    (place / "k.pem").write_text(key)
    (place / "k.pem").chmod(mode)
    (place / "class.yaml").write_text(f"{CLASS}address: 0.0.0.0:443\n{more}{TLS}")
    done = lab(place, "class", "validate", "--gpus", "2")
    return [line for line in done.stderr.splitlines() if line.startswith("tls")]


# ---- The page


def example() -> str:
    """The class config that docs/reference/class.md shows."""
    page = (ROOT / "docs/reference/class.md").read_text("utf-8")
    (text,) = re.findall(r"^```yaml\n(version: 1\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_documented_example_is_valid(place: Path) -> None:
    (place / "class.yaml").write_text(example())
    for name, text in (("cert.pem", CERTIFICATE), ("key.pem", KEY)):
        (place / name).write_text(text)
        (place / name).chmod(0o600)
    done = lab(place, "class", "validate", "--gpus", "8")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("class.yaml: valid: tf-workshop, 30 seats\n")


def table(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the table below a heading row, by their first cell."""
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
    parts = {"seat": config.seat, "seat.gpus": config.seat.gpus}
    keys = set(type(config).model_fields)
    for name, part in (parts | {"tls": config.tls}).items():
        keys |= {f"{name}.{key}" for key in type(part).model_fields}
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", page, re.MULTILINE))
    assert documented == keys - {"seat", "tls"}
