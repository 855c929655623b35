"""`lab class`: its actions, and the checks of `lab class validate`."""

from __future__ import annotations

import importlib
import json
import platform
import re
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from lab.classroom.config import parse_class
from lab.classroom.planning import NOT_ISOLATED
from lab.cli.completion.spec import specs
from lab.doctor.data import Directory
from lab.doctor.engine import EngineInfo
from lab.errors import LabError
from lab.gpu import Inventory, chosen_host
from lab.service import classroom
from tests.golden.boxes import box, uuid_of
from tests.support.classes import CERTIFICATE, CLASS, CLUSTER, KEY
from tests.support.cli import lab

ROOT = Path(__file__).parents[2]
command = importlib.import_module("lab.cli.commands.class")

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
    monkeypatch.setattr(classroom, "routes", lambda: [(IPv4Network("10.0.0.0/24"), "eth0")])
    monkeypatch.setattr(classroom, "read_engine", lambda: engine)
    monkeypatch.setattr(classroom, "unavailable_reason", lambda: "only root can")


# ---- Actions


def test_every_action_has_a_function_and_a_line_in_the_help() -> None:
    for action in command.ACTIONS:
        assert callable(importlib.import_module(f"lab.cli.class_actions.{action}").run)
        assert re.search(rf"^{action} +\w", command.__doc__ or "", re.MULTILINE)


def test_a_shell_completes_the_actions() -> None:
    (spec,) = (each for each in specs() if each.name == "class")
    assert spec.arguments[0].choices == tuple(command.ACTIONS)
    values = {option.name: option.value for option in spec.options}
    assert values["file"] is not None
    assert values["file"].files


def test_an_unknown_action(place: Path) -> None:
    done = lab(place, "class", "valdate")
    assert (done.returncode, done.stdout) == (2, "")
    known = "validate, up, status, handouts, reset or down"
    assert done.stderr == f"error: action: 'valdate' is not {known}\n"
    assert "needs ACTION; see `lab class --help`" in lab(place, "class").stderr


def test_a_flag_of_another_action(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "ACTIONS", {"validate": frozenset({"--gpus"})})
    done = lab(place, "class", "validate", "--json", "--gpus", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: `lab class validate` does not take --json; leave out --json\n"


# ---- lab class validate


def test_what_each_seat_gets(place: Path, host: None) -> None:
    done = lab(place, "class", "validate")
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert rows == [
        ["ada", uuid_of(0)[:12], "10.89.0.16/28", "1", "GiB"],
        ["bob", uuid_of(1)[:12], "10.89.0.32/28", "1", "GiB"],
        ["(proxy)", "10.89.0.0/28"],
    ]
    assert done.stderr == (
        "no limit of CPUs, disk: one seat can take all that the host has\n"
        "class.yaml: valid: w, 2 seats\n"
    )


def test_the_turns_of_a_queue_and_another_file(place: Path, host: None) -> None:
    (place / "class.yaml").rename(place / "my.yaml")
    text = CLASS.replace("gpus: 1,", "gpus: {queue: true}, cpus: 0.5,") + "cpu_runs: 1\n"
    (place / "my.yaml").write_text(text)
    done = lab(place, "class", "validate", "--file", "my.yaml")
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert rows[0] == ["ada", "none", "10.89.0.16/28", "0.5", "1", "GiB"]
    assert rows[3:] == [
        ["(queue)", uuid_of(0)[:12], "10.89.0.48/28"],
        ["(queue)", uuid_of(1)[:12], "10.89.0.64/28"],
        ["(queue)", "none", "10.89.0.80/28"],
    ]
    assert done.stderr.endswith("my.yaml: valid: w, 2 seats\n")


def test_a_class_without_docker(place: Path, host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("it asks for an engine")

    monkeypatch.setattr(classroom, "read_engine", refuse)
    monkeypatch.setattr(classroom, "routes", refuse)
    done = lab(place, "class", "validate", "--backend", "local")
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [rows[0], *rows[2:]] == [
        ["seat", "gpus"],
        ["ada", uuid_of(0)[:12]],
        ["bob", uuid_of(1)[:12]],
    ]
    *lines, limits, valid = done.stderr.splitlines()
    assert tuple(lines) == NOT_ISOLATED
    assert limits == "not enforced: `memory`"
    assert valid == "class.yaml: valid: w, 2 seats"
    found = json.loads(lab(place, "class", "validate", "--backend", "local", "--json").stdout)
    assert (found["backend"], found["proxy_network"]) == ("local", None)


def test_a_class_without_docker_needs_the_disk(
    place: Path, host: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "class.yaml").write_text(CLASS.replace("memory: 1GiB", "disk: 64TiB"))
    done = lab(place, "class", "validate", "--backend", "local")
    assert done.returncode == 2
    assert done.stderr.startswith("seat.disk: 2 seats with ")


def test_an_unknown_backend_of_a_class(place: Path) -> None:
    done = lab(place, "class", "up", "--backend", "class")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --backend: 'class' is not compose or local\n"


def test_a_class_as_json(place: Path, host: None) -> None:
    found = json.loads(lab(place, "class", "validate", "--json").stdout)
    assert (found["file"], found["valid"], found["problems"]) == ("class.yaml", True, [])
    assert [seat["gpus"] for seat in found["seats"]] == [[uuid_of(0)], [uuid_of(1)]]


def test_all_problems_of_all_files_are_reported_together(place: Path, host: None) -> None:
    text = CLASS.replace("gpus: 1", "gpus: 2").replace("1GiB", "1TiB")
    (place / "class.yaml").write_text(f"{text}tls: {{certificate: c.pem, key: k.pem}}\n")
    done = lab(place, "class", "validate", "--json")
    assert done.returncode == 2
    found = json.loads(done.stdout)
    assert (found["file"], found["valid"]) == ("class.yaml", False)
    assert found["problems"] == [
        "tls.certificate: there is no file c.pem; name another file with `certificate:`",
        "tls.key: there is no file k.pem; name another file with `key:`",
        "seat.gpus: 2 seats with 2 GPUs each need 4 GPUs, this host has 2; use "
        "`gpus: {queue: true}`, `gpus: {count: 2, share: true}`, or 1 seat at most",
        "seat.memory: 2 seats with 1024 GiB each need 2048 GiB, this host has 512 GiB of memory; "
        "use `memory: 256GiB` or less",
    ]
    assert done.stderr.splitlines() == found["problems"]


def test_problems_of_the_cluster_config_are_reported(place: Path, host: None) -> None:
    (place / "cluster.yaml").write_text(f"{CLUSTER}prot: 1\n")
    done = lab(place, "class", "validate")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'cluster.yaml:5:1: prot: unknown key; did you mean "port"?\n'
    (place / "cluster.yaml").unlink()
    done = lab(place, "class", "validate")
    assert done.returncode == 2
    assert done.stderr == (
        "there is no file cluster.yaml; write it with `lab init`, or name another file with "
        "`cluster:`\n"
    )


def test_a_missing_or_invalid_class_config(place: Path) -> None:
    (place / "class.yaml").write_text("version: 1\nname: w\nsetas: 2\n")
    done = lab(place, "class", "validate")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "class.yaml:1:1: seats: is missing",
        'class.yaml:3:1: setas: unknown key; did you mean "seats"?',
    ]
    done = lab(place, "class", "validate", "--file", "no.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: there is no file no.yaml; name a class config with `--file FILE` (default: "
        "class.yaml)\n"
    )


def test_another_host_is_known_by_the_number_of_its_gpus(place: Path) -> None:
    done = lab(place, "class", "validate", "--gpus", "2")
    assert done.returncode == 0
    assert done.stderr.startswith(
        "another host: its CPUs, memory, disk and networks are not checked\n"
    )
    done = lab(place, "class", "validate", "--gpus", "1")
    assert (done.returncode, "need 2 GPUs, this host has 1; use" in done.stderr) == (2, True)
    assert "is not auto, none, or a number from 1 to 1,000" in (
        lab(place, "class", "validate", "--gpus", "all").stderr
    )


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


def test_the_disk_and_networks_of_the_host(tmp_path: Path, host: None) -> None:
    lines: list[str] = []
    found = classroom.host_facts(box(2), lines.append)
    assert found.networks == (IPv4Network("10.0.0.0/24"), IPv4Network("172.17.0.0/16"))
    assert (found.disk_free_bytes or 0) > 0
    assert lines == []
    own = [IPv4Network("10.0.0.0/24")]
    assert classroom.host_facts(box(2), lines.append, own).networks == (
        IPv4Network("172.17.0.0/16"),
    )


def test_limits_of_disks_are_not_enforced_for_a_reason(
    monkeypatch: pytest.MonkeyPatch, host: None, tmp_path: Path
) -> None:
    lines: list[str] = []
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    where: list[Path] = []
    inspect = classroom.inspect_directory

    def inspected(path: Path, *names: str) -> Directory:
        where.append(path)
        return replace(inspect(path, *names), free=5 * 10**9)

    monkeypatch.setattr(classroom, "inspect_directory", inspected)
    for reason in ("", "only root can"):
        monkeypatch.setattr(classroom, "unavailable_reason", lambda reason=reason: reason)
        found = classroom.host_facts(box(2), lines.append)
        assert found.disk_unenforced == reason
        # The host keeps 1 GB of what seats can reserve.
        assert found.disk_free_bytes == (5 if reason else 4) * 10**9
    assert where == [tmp_path / "state", tmp_path / "volumes"]
    local = {"Name": platform.node(), "SecurityOptions": ["name=rootless"]}
    for info, reason in (
        ({"Name": "elsewhere"}, "the engine runs on another host"),
        (local, "a rootless engine cannot mount a file system"),
    ):
        monkeypatch.setattr(classroom, "read_engine", lambda info=info: EngineInfo(info))
        assert classroom.host_facts(box(2), lines.append).disk_unenforced == reason
    another = Inventory("index", box(8).gpus, None, None)
    assert classroom.host_facts(another, lines.append).disk_unenforced is None


def test_an_engine_elsewhere_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(
        classroom,
        "routes",
        lambda: [(IPv4Network("0.0.0.0/1"), "vpn"), (IPv4Network("10.0.0.0/8"), "vpn")],
    )
    monkeypatch.setattr(classroom, "read_engine", lambda: EngineInfo({"Name": "elsewhere"}))
    found = classroom.host_facts(box(2), lines.append)
    assert (found.disk_free_bytes, found.networks) == (None, (IPv4Network("10.0.0.0/8"),))
    for error in (
        LabError("reaching the engine: no answer", "start it"),
        TimeoutError("no answer"),
    ):

        def fail(error: Exception = error) -> EngineInfo:
            raise error

        monkeypatch.setattr(classroom, "read_engine", fail)
        assert classroom.host_facts(box(2), lines.append).disk_free_bytes is None
    assert lines == ["no answer: its disk and networks are not checked"] * 2


# ---- TLS


def tls_lines(place: Path, certificate: str, key: str, mode: int = 0o600) -> list[str]:
    """What `lab class validate` prints about these files."""
    for name, text in (("c.pem", certificate), ("k.pem", key)):
        (place / name).write_text(text)
        (place / name).chmod(mode)
    (place / "class.yaml").write_text(
        f"{CLASS}address: 0.0.0.0:443\ntls: {{certificate: c.pem, key: k.pem}}\n"
    )
    return [
        line
        for line in lab(place, "class", "validate", "--gpus", "2").stderr.splitlines()
        if line.startswith("tls")
    ]


def test_a_certificate_needs_its_key(place: Path) -> None:
    assert tls_lines(place, CERTIFICATE, KEY) == []
    for key in (ANOTHER_KEY, CERTIFICATE, "", KEY.replace("A", "B")):
        assert tls_lines(place, CERTIFICATE, key) == [
            "tls: c.pem and k.pem are not a certificate and its key without passphrase; write both "
            "as PEM"
        ]


def test_a_key_that_other_users_can_read(place: Path) -> None:
    assert tls_lines(place, CERTIFICATE, KEY, 0o640) == []
    assert tls_lines(place, CERTIFICATE, KEY, 0o644) == [
        "tls.key: other users can read k.pem; run `chmod o= k.pem`"
    ]


# ---- The page


def example() -> str:
    """The class config that docs/teach.md shows."""
    page = (ROOT / "docs/teach.md").read_text("utf-8")
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


def test_every_key_is_documented_and_in_the_example() -> None:
    page = (ROOT / "docs/teach.md").read_text("utf-8")
    config = parse_class(example().encode(), "class.yaml")
    keys = set(type(config).model_fields)
    for part in (config.seat, config.times, config.tls):
        assert part is not None
        keys |= {f"{_name_in(config, part)}.{key}" for key in type(part).model_fields}
    keys |= {f"seat.gpus.{key}" for key in type(config.seat.gpus).model_fields}
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", page, re.MULTILINE))
    assert documented == keys - {"seat", "times", "tls"}


def _name_in(config: object, part: object) -> str:
    return next(name for name in ("seat", "times", "tls") if getattr(config, name) is part)
