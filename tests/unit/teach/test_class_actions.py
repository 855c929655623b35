"""`lab class` as a command: its actions, and the checks of a class; nothing is started."""

from __future__ import annotations

import json
import platform
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from lab.backends.engine.client import Engine
from lab.backends.engine.error_hints import EngineKind
from lab.backends.engine.info import EngineInfo, read_engine
from lab.base.errors import InputError, LabError
from lab.cli import main
from lab.cluster.gpu import Inventory, chosen_host
from lab.teach.classroom import preparation as classroom
from lab.teach.classroom import up_down
from lab.teach.classroom.class_dir import ClassDir, StoredClass, changed_end
from lab.teach.classroom.config import parse_class
from lab.teach.classroom.queue.host import Queued
from lab.teach.classroom.seat_report import RunReport
from lab.teach.classroom.seat_status import SeatStatus
from lab.verbs import class_actions
from tests.golden.boxes import box, uuid_of
from tests.support.agents import ROOT
from tests.support.classes import CERTIFICATE, CLASS, CLUSTER, KEY, a_plan, plan, stored
from tests.support.cli import lab, refused

Call = Callable[..., Any]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a class config; commands in it have their own state directory."""
    (tmp_path / "class.yaml").write_text(CLASS)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def call(place: Path) -> Call:
    return lambda words: lab(place, "class", *words.split(), LAB_STATE=str(place / "state"))


def running(name: str = "w") -> ClassDir:
    folder = ClassDir(name)
    folder.create(stored(replace(a_plan(cpu_runs=1), name=name)))
    return folder


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("up ada", "SEAT"),
        ("time 45m --yes", "--yes"),
        ("status --port 1", "--port"),
        ("status --gpus 8", "--gpus"),
        ("handouts -y", "--yes"),
        ("down --gpus 8", "--gpus"),
        ("down --for canvas", "--for"),
    ],
)
def test_an_argument_that_does_not_apply(words: str, wrong: str, call: Call) -> None:
    action = words.partition(" ")[0]
    line = refused(call(words))
    assert line == f"error: `lab class {action}` does not take {wrong}; leave out {wrong}"


def test_which_class_is_meant(place: Path, call: Call) -> None:
    for action in ("status", "handouts", "reset ada", "down --yes"):
        assert "no class is up; start one with `lab class up`" in refused(call(action))
    running("first")
    line = refused(call("down --yes"))
    assert line == "error: the class 'w' is not up; name the config of first with --file"
    (place / "class.yaml").rename(place / "b.yaml")
    assert call("handouts").returncode == 0  # the only class needs no config
    (place / "class.yaml").write_text("name: w\nseats: many\n")
    done = call("handouts")
    assert (done.returncode, "seats: must be a number" in done.stderr) == (2, True)
    (place / "class.yaml").unlink()
    running("w")
    assert "there is no file class.yaml" in refused(call("handouts"))
    assert call("handouts --file b.yaml").returncode == 0
    assert (place / "first-handouts.html").is_file() and (place / "w-handouts.html").is_file()


@pytest.fixture
def booted(place: Path, monkeypatch: pytest.MonkeyPatch) -> list[StoredClass]:
    found: list[StoredClass] = []

    def ensure(_: object, *, gpus: bool, cpu_runs: bool, **__: object) -> str:
        return f"image for {'GPUs' if gpus else 'CPUs'}{' and CPUs' if cpu_runs else ''}"

    monkeypatch.setattr(classroom, "chosen_host", lambda gpus: box(2))
    monkeypatch.setattr(classroom, "routes", list)
    monkeypatch.setattr(classroom, "ensure_image", ensure)
    monkeypatch.setattr(up_down, "up", found.append)
    monkeypatch.setattr(classroom, "find_root", lambda path: ROOT)
    monkeypatch.setattr(Engine, "is_podman", lambda engine: False)
    return found


@pytest.mark.parametrize(
    ("text", "images", "gpus"),
    [
        (CLASS, "image for GPUs", [(uuid_of(0),), (uuid_of(1),)]),
        (f"{CLASS}cpu_runs: 1\n", "image for GPUs and CPUs", [(uuid_of(0),), (uuid_of(1),)]),
        ("version: 1\nname: w\nseats: 1\n", "image for CPUs", [()]),
    ],
)
def test_a_class_is_booted_as_planned(
    text: str, images: str, gpus: object, place: Path, call: Call, booted: list[StoredClass]
) -> None:
    (place / "class.yaml").write_text(text)
    done = call("up")
    assert (done.returncode, done.stdout) == (0, "")
    assert "only browsers on this host reach http://w.localhost:8000" in done.stderr
    address, hint = done.stderr.splitlines()[-2:]
    assert address.endswith(" at http://w.localhost:8000")
    assert "`lab class handouts`" in hint
    (what,) = booted
    assert [each.gpus for each in what.plan.seats] == gpus
    assert (what.image, what.cluster) == (images, CLUSTER)
    assert len(what.plan.run_networks) == ("cpu_runs" in text)


def test_a_class_is_not_booted(
    place: Path, call: Call, booted: list[StoredClass], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "is_podman", lambda engine: True)
    assert "this engine is Podman; set DOCKER_HOST to the socket" in refused(call("up"), code=1)
    monkeypatch.setattr(Engine, "is_podman", lambda engine: False)
    assert booted == []


def test_a_class_whose_jupyterhub_ended_goes_on_with_its_own_plan(
    place: Path, call: Call, booted: list[StoredClass]
) -> None:
    (place / "class.yaml").write_text(CLASS.replace("[ada, bob]", "9"))  # changed since then
    folder = ClassDir("w")
    folder.create(stored(a_plan()))
    assert call("up").returncode == 0
    assert booted == [folder.stored()]


RUN = RunReport("r1", "async", "training", 61.0, 1_200, 2.0)
HOSTILE = RunReport("\x1b[2J[bold]", "x\x07", "\x1b]0;owned\x07", 1.0, None, None)
QUEUE = [
    Queued("dan", "up", None, 2, (uuid_of(0), uuid_of(1)), 70.0),
    Queued("cy", "waiting", 1, 2, (), 30.0),
    Queued("ada", "waiting", 1, 0, (), 90.0),
]
WIDE = [Queued("dan", "granted", None, 4, tuple(map(uuid_of, range(4))), 70.0)]


@pytest.fixture
def seats(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running()
    found = [
        SeatStatus("ada", "ready", (uuid_of(0),), True, RUN, stuck=False),
        SeatStatus("bob", "ready", (), True, HOSTILE, stuck=False),
        SeatStatus("cy", "stopped", (), True, None, stuck=False),
        SeatStatus("dan", "ready", (), True, RUN, stuck=True, passed={"async": (2, 3)}),
    ]
    monkeypatch.setattr("lab.teach.classroom.seat_status.seat_statuses", lambda *_: found)


@pytest.mark.parametrize(("queue", "width"), [(None, 60), ([], 80), (QUEUE, 200), (WIDE, 80)])
def test_the_tables_of_the_seats_and_the_queue(
    queue: list[Queued] | None,
    width: int,
    call: Call,
    seats: None,
    snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(class_actions, "terminal_width", lambda stream: width)
    monkeypatch.setattr("lab.teach.classroom.queue.host.queued", lambda folder: queue)
    done, as_json = call("status"), call("status --json")
    assert max(map(len, done.stdout.splitlines())) <= width
    lines = done.stdout.splitlines()
    # Of each seat, the newest counts: ada has a run after its request, and dan's turn has begun.
    assert ("queue: waiting" in lines[4]) is (queue == QUEUE)
    assert "training" in lines[2] and "stuck" in lines[5]
    for printed in (done.stdout, as_json.stdout):
        assert "owned" in printed
        assert not any(sign in printed for sign in ("\x1b", "\x07"))
    found = json.loads(as_json.stdout)
    assert [each["stuck"] for each in found["seats"]] == [False, False, False, True]
    assert found["queue"] == msgspec.json.decode(msgspec.json.encode(queue))
    assert (done.returncode, done.stdout, done.stderr) == snapshot


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("2026-12-01T12:00:00+01:00", "ends at 12:00, in 35 min"),
        ("2026-12-03T12:00:00+01:00", "ends at 2026-12-03 12:00, in 48 h 35 min"),
        ("2026-12-01T11:24:59+01:00", "ended at 11:24"),
    ],
)
def test_the_end_of_the_class_for_people(
    end: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=datetime.fromisoformat("2026-12-01T10:25:00+00:00").astimezone)
    monkeypatch.setattr(class_actions, "datetime", clock)
    assert class_actions.when_ends(datetime.fromisoformat(end)) == text


def test_the_end_of_the_class_is_above_the_seats(
    call: Call, seats: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.teach.classroom.queue.host.queued", lambda _: None)
    ends_unix = time.time() + 2110
    ClassDir("w").set_end(ends_unix)
    line = call("status").stderr
    assert line.startswith("class w: ends at ") and line.endswith(", in 35 min\n")
    found = json.loads(call("status --json").stdout)["end"]
    assert datetime.fromisoformat(found).timestamp() == pytest.approx(ends_unix)


def test_the_teacher_sets_and_removes_the_end(call: Call) -> None:
    folder = running()
    assert call("time").stdout == "the class has no end\n"
    (folder.path / "time.json").write_text("{")
    line = refused(call("time"), code=1)
    assert "time.json cannot be read" in line
    assert "set the end with `lab class time 45m`" in line
    assert json.loads(call("time 45m --json").stdout)["left_s"] == pytest.approx(2700, abs=60)
    assert call("time off --json").stdout == '{\n  "end": null,\n  "left_s": null\n}\n'
    assert folder.end() is None


@pytest.mark.parametrize(
    ("text", "end", "expected"),
    [
        ("45m", None, 3700.0),
        ("1h30m", 2000.0, 6400.0),
        ("+15m", 2000.0, 2900.0),
        ("+15m", 500.0, 1900.0),  # after the end, it counts from now
        ("off", 2000.0, None),
    ],
)
def test_the_new_end(text: str, end: float | None, expected: float | None) -> None:
    assert changed_end(text, end, 1000.0) == expected


@pytest.mark.parametrize("text", ["", "+", "0s", "8d", "-5m", "45", "++5m", "12:00", "\x1b[2J"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InputError, match="is not a time from 1s to 7d") as caught:
        changed_end(text, 1.0, 1.0)
    assert caught.value.fix.startswith("use a duration such as 45m")
    assert str(caught.value).isprintable()
    with pytest.raises(InputError, match="no end to extend; set one with `lab class time 45m`"):
        changed_end("+5m", None, 1.0)


def test_the_page_is_written_and_not_printed(place: Path, call: Call) -> None:
    folder = running()
    done = call("handouts --output my.html")
    reach, line = done.stderr.splitlines()
    assert reach == folder.stored().plan.reach != ""
    assert line == "print my.html, then delete it: it contains the password of every seat"
    text = (place / "my.html").read_text()
    for token in folder.tokens().seats.values():
        assert token in text
        assert token not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("reset", "no seat '' in the class 'w'; see the seats with `lab class status`"),
        ("reset bop", "no seat 'bop' in the class 'w'; did you mean 'bob'? see the seats with"),
        ("reset teacher", "no seat 'teacher'"),
        ("reset bob", "A copy of its work is kept. (stdin is not a terminal); add --yes"),
        ("down", "Its work is collected first. (stdin is not a terminal)"),
    ],
)
def test_nothing_is_removed_by_mistake(words: str, error: str, call: Call) -> None:
    folder = running()
    assert error in refused(call(words))
    assert folder.stored()


@pytest.mark.parametrize(("answer", "removed"), [("Yes ", True), ("n", False), ("", False)])
def test_only_a_yes_removes(
    answer: str, removed: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running()
    calls: list[Any] = []
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda: answer)
    monkeypatch.setattr(up_down, "down", lambda *given: calls.append(given[1]))
    monkeypatch.setattr(up_down, "reset", lambda *given: calls.append(given[1]))
    codes = [main(["class", "down", "--output", "w.zip"]), main(["class", "reset", "ada"])]
    assert codes == ([0, 0] if removed else [2, 2])
    assert calls == ([Path("w.zip"), "ada"] if removed else [])


ANOTHER_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgbmQlBMS9VG2ZShA7
eZgoT52trNQsGgGdHDh3CvvZmPOhRANCAASzzBOXxUlBymQNDL/JIl0k+HUsQ+PD
EhbLHiUCpnM4DD6eqapEREcgrUs1Otvuhyo4sOc59KNxUUSTyNWN5YHh
-----END PRIVATE KEY-----
"""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host with two GPUs, a network and an engine."""
    info = {"Name": platform.node(), "DockerRootDir": str(tmp_path)}
    engine = EngineInfo(info, [IPv4Network("172.17.0.0/16")])
    monkeypatch.setattr(classroom, "chosen_host", lambda gpus: box(2))
    monkeypatch.setattr(classroom, "routes", lambda: [IPv4Network("10.0.0.0/24")])
    monkeypatch.setattr(classroom, "read_engine", lambda: engine)
    monkeypatch.setattr(classroom, "unavailable_reason", lambda: "only root can")


TLS = "tls: {certificate: c.pem, key: k.pem}\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "`lab class` needs ACTION; see `lab class --help`"),
        ("up --backend local", "no option '--backend' for `lab class`; see `lab class --help`"),
        ("valdate", "action: 'valdate' is not validate, up, status, board, time, handouts, reset"),
        (
            "validate --file no.yaml",
            "there is no file no.yaml; name a class config with `--file FILE`, or copy the ",
        ),
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
                "tls: there is no file c.pem; name another file with `certificate:`",
                "seat.gpus: 2 seats with 2 GPUs each need 4 GPUs, this host has 2; let ",
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
    shown = {
        "file": "class.yaml",
        "valid": True,
        "problems": [],
        **msgspec.to_builtins(planned, enc_hook=str),
    }
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
    assert (done.returncode, "need 2 GPUs, this host has 1; let" in done.stderr) == (2, True)


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


@pytest.mark.parametrize(
    ("info", "unavailable", "reason", "free"),
    [
        ({"Name": platform.node()}, "", "", 8),
        ({"Name": platform.node()}, "only root can", "only root can", 4),
        (
            {"Name": platform.node(), "SecurityOptions": ["name=rootless"]}, "",
            "a rootless engine cannot mount a file system", 4,
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
    notices: list[str],
) -> None:
    def free_bytes(directory: Path) -> int:
        return (5 if directory.name == "volumes" else 9) * 10**9

    monkeypatch.setattr(classroom, "free_bytes", free_bytes)
    monkeypatch.setattr(classroom, "unavailable_reason", lambda: unavailable)
    monkeypatch.setattr(
        classroom, "read_engine", lambda: EngineInfo(info, [IPv4Network("172.17.0.0/16")])
    )
    found = classroom.host_facts(box(2))
    assert found.disk_unenforced == reason
    # The host keeps 1 GB.
    assert found.disk_free_bytes == (free and free * 10**9)
    assert found.networks[:1] == (IPv4Network("10.0.0.0/24"),)
    assert (found.networks[1:], notices) == ((IPv4Network("172.17.0.0/16"),), [])


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
    (notice,) = notices
    assert re.match("the disk and the engine's networks are not checked: .*no answer", notice)


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
    (place / "class.yaml").write_text(f"{CLASS}address: 192.0.2.7:443\n{more}{TLS}")
    done = lab(place, "class", "validate", "--gpus", "2")
    return [line for line in done.stderr.splitlines() if line.startswith("tls")]
