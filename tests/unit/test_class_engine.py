"""The containers, networks and volumes that a class asks the engine for."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest
from dockerspawner import DockerSpawner

from lab.backends.compose.client import Engine
from lab.classroom import engine as engines
from lab.classroom import spawner
from lab.classroom.disks import SeatDisk
from lab.classroom.engine import (
    create_networks,
    create_volumes,
    remove_all,
    remove_volume,
    start_proxy,
)
from lab.errors import LabError
from tests.support.classes import a_plan, certificate

PLAN = a_plan()


class Thing:
    """A container, a network or a volume."""

    def __init__(self, name: str, engine: Recorder) -> None:
        self.name = self.id = name
        self._engine = engine
        self.accepts = True

    def __getattr__(self, action: str) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            self._engine.events.append((action, self.name, given, options))
            if (action, self.name) == self._engine.fails:
                raise docker.errors.APIError("no space left")
            if (action, self.name) == self._engine.gone:
                raise docker.errors.NotFound("gone")
            return self.accepts

        return call


class Recorder(Engine):
    """An engine that records what is created, and has these things."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[Any, ...]] = []
        self.fails: tuple[str, str] = ("", "")
        self.gone: tuple[str, str] = ("", "")
        self.things: dict[str, list[Thing]] = {"networks": [], "volumes": []}
        self.created: dict[str, dict[str, Any]] = {}
        self.accepts = True

        def create(name: str, **options: Any) -> Thing:
            self.created[name] = options
            return Thing(name, self)

        def container(image: str, command: list[str], **options: Any) -> Thing:
            name = options["name"]
            self.created[name] = {"command": command, **options}
            found = Thing(name, self)
            found.accepts = self.accepts
            return found

        def kind(name: str) -> Any:
            return SimpleNamespace(
                create=create,
                get=lambda each: Thing(each, self),
                list=lambda filters: self.things[name],
            )

        self._local.client = SimpleNamespace(
            networks=kind("networks"),
            volumes=kind("volumes"),
            containers=SimpleNamespace(create=container),
            api=SimpleNamespace(create_endpoint_config=lambda **options: options),
        )

    def containers(self, *labels: str) -> Any:
        self.events.append(("containers", labels))
        return [Thing("c1", self)]

    def for_each(self, doing: str, containers: Any, action: Callable[..., Any]) -> Any:
        return [action(each) for each in containers]


def test_only_the_proxy_s_network_leads_out_of_the_engine() -> None:
    engine = Recorder()
    create_networks(engine, PLAN)
    assert {name: each["internal"] for name, each in engine.created.items()} == {
        "lab-class-w": False,
        "lab-class-w-ada": True,
        "lab-class-w-bob": True,
    }
    assert engine.created["lab-class-w"]["options"] == {
        "com.docker.network.bridge.enable_ip_masquerade": "false"
    }
    (pool,) = engine.created["lab-class-w-bob"]["ipam"]["Config"]
    assert (pool["Subnet"], pool["Gateway"]) == ("10.89.0.32/28", "10.89.0.33")
    assert engine.created["lab-class-w-ada"]["labels"] == {"lab.class": "w", "lab.seat": "ada"}


def test_each_seat_has_a_volume_and_tls_has_one(tmp_path: Path) -> None:
    engine = Recorder()
    create_volumes(engine, PLAN, {})
    assert set(engine.created) == {"lab-class-w-ada", "lab-class-w-bob"}
    create_volumes(engine, a_plan(tls=certificate(tmp_path)), {})
    assert engine.created["lab-class-w.tls"]["labels"] == {"lab.class": "w"}


def test_the_engine_mounts_the_disk_of_a_seat(tmp_path: Path) -> None:
    engine = Recorder()
    create_volumes(engine, PLAN, {"bob": SeatDisk(tmp_path, "bob", 1)})
    assert engine.created["lab-class-w-ada"]["driver_opts"] is None
    assert engine.created["lab-class-w-bob"] == {
        "driver_opts": {
            "type": "ext4",
            "device": str(tmp_path / "bob.device"),
            "o": "nosuid,nodev",
        },
        "labels": {"lab.class": "w", "lab.seat": "bob"},
    }


def test_a_volume_is_removed_once() -> None:
    engine = Recorder()
    remove_volume(engine, "w", "ada")
    assert [event[:2] for event in engine.events] == [("remove", "lab-class-w-ada")]
    engine.gone = ("remove", "lab-class-w-ada")
    remove_volume(engine, "w", "ada")
    engine.fails = ("remove", "lab-class-w-bob")
    with pytest.raises(LabError, match="removing the volume lab-class-w-bob"):
        remove_volume(engine, "w", "bob")


def test_the_proxy_has_few_rights_and_one_published_port() -> None:
    engine = Recorder()
    start_proxy(engine, PLAN, "lab-class:cpu", "secret")
    proxy, relay = engine.created["lab-class-w.proxy"], engine.created["lab-class-w.relay-hub"]
    assert proxy["ports"] == {"8000/tcp": ("127.0.0.1", 8000)}
    assert "ports" not in relay
    assert relay["network_mode"] == "container:lab-class-w.proxy"
    for each in (proxy, relay):
        assert each["cap_drop"] == ["ALL"]
        assert each["read_only"] is True
        assert each["log_config"].config["max-size"] == "10m"
        assert each["security_opt"] == ["no-new-privileges:true"]
        assert each["environment"] == {"CONFIGPROXY_AUTH_TOKEN": "secret"}
        assert "secret" not in each["command"]  # other users see a command
    words = proxy["command"]
    assert words[words.index("--api-ip") + 1] == "10.89.0.2"
    assert relay["command"][relay["command"].index("--api-ip") + 1] == "127.0.0.1"
    connected = {
        event[1]: event[3]["ipv4_address"] for event in engine.events if event[0] == "connect"
    }
    assert connected == {"lab-class-w-ada": "10.89.0.18", "lab-class-w-bob": "10.89.0.34"}
    # It starts in all networks.
    assert [event[0] for event in engine.events] == ["connect", "connect", "start", "start"]


def test_seats_reach_the_queue_by_a_relay_of_its_own() -> None:
    engine = Recorder()
    start_proxy(engine, a_plan(gpus={"queue": True}), "lab-class:cpu", "secret")
    hub, queue = (engine.created[f"lab-class-w.relay-{to}"] for to in ("hub", "queue"))
    targets = {
        each["command"][each["command"].index("--port") + 1]: each["command"][-5]
        for each in (hub, queue)
    }
    assert targets == {"8081": "http://10.89.0.1:8081", "8083": "http://10.89.0.1:8082"}
    assert queue["command"][-4:] == ["--api-ip", "127.0.0.1", "--api-port", "8084"]
    assert {key: queue[key] for key in queue if key not in {"command", "name"}} == {
        key: hub[key] for key in hub if key not in {"command", "name"}
    }


def test_the_proxy_gets_its_own_copy_of_the_key(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    tls.certificate.write_text("certificate")
    tls.key.write_text("key")
    engine = Recorder()
    start_proxy(engine, a_plan(tls=tls), "lab-class:cpu", "secret")
    (upload,) = [event for event in engine.events if event[0] == "put_archive"]
    with tarfile.open(fileobj=io.BytesIO(upload[2][1])) as archive:
        found = {
            each.name: (each.uid, each.mode, archive.extractfile(each).read())  # type: ignore[union-attr]
            for each in archive
        }
    assert found == {
        "certificate.pem": (1000, 0o400, b"certificate"),
        "key.pem": (1000, 0o400, b"key"),
    }
    tls.key.unlink()
    with pytest.raises(FileNotFoundError):
        start_proxy(engine, a_plan(tls=tls), "lab-class:cpu", "secret")


def test_an_engine_that_refuses_the_certificate(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    tls.certificate.write_text("certificate")
    tls.key.write_text("key")
    engine = Recorder()
    engine.accepts = False
    with pytest.raises(LabError) as caught:
        start_proxy(engine, a_plan(tls=tls), "lab-class:cpu", "secret")
    assert str(caught.value) == "the engine refused the certificate; start the class again"


def test_what_can_be_removed_is_removed() -> None:
    engine = Recorder()
    engine.things = {
        "networks": [Thing("n1", engine), Thing("n2", engine), Thing("n3", engine)],
        "volumes": [Thing("v1", engine)],
    }
    engine.fails, engine.gone = ("remove", "n1"), ("remove", "n2")
    with pytest.raises(LabError, match="removing n1 of the networks: no space left"):
        remove_all(engine, "w")
    removed = [event[1] for event in engine.events if event[0] == "remove"]
    assert removed == ["c1", "n1", "n2", "n3", "v1"]


def test_the_contents_of_a_class() -> None:
    engine = Recorder()
    engine.things["networks"] = [Thing("n1", engine), Thing("n2", engine)]
    found = engines.contents(engine, "w")
    assert found == {"container": 1, "network": 2, "volume": 0}


def test_the_containers_of_one_seat() -> None:
    engine = Recorder()
    engines.seat_containers(engine, "w", "ada")
    engines.seat_containers(engine, "w")
    assert engine.events == [
        ("containers", ("lab.class=w", "lab.seat=ada")),
        ("containers", ("lab.class=w",)),
    ]


# ---- The block of the host


def test_the_host_is_blocked_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []

    async def start(self: DockerSpawner) -> None:
        steps.append("started")

    container = SimpleNamespace(
        labels={"lab.class": "w"},
        attrs={"NetworkSettings": {"Networks": {"lab-class-w-ada": {"Gateway": ""}}}},
    )
    pool = {"Subnet": "10.89.0.16/28", "Gateway": "10.89.0.17"}
    networks = {"lab-class-w-ada": SimpleNamespace(attrs={"IPAM": {"Config": [pool]}})}
    client = SimpleNamespace(
        containers=SimpleNamespace(get=lambda _: container),
        networks=SimpleNamespace(get=networks.get),
    )
    monkeypatch.setattr(DockerSpawner, "start_object", start)
    monkeypatch.setattr(spawner, "Engine", lambda: SimpleNamespace(client=lambda: client))

    def block(engine: object, *given: object, **options: object) -> None:
        steps.append((*given, options))

    monkeypatch.setattr(spawner, "block_container", block)
    seat = object.__new__(spawner.SeatSpawner)
    seat.__dict__.update(container_id="id")
    monkeypatch.setattr(spawner.SeatSpawner, "user", SimpleNamespace(name="ada"))
    monkeypatch.setattr(spawner.SeatSpawner, "container_id", "id", raising=False)
    asyncio.run(seat.start_object())
    assert steps == [
        "started",
        (
            "lab-class-w",
            ["10.89.0.17"],
            container,
            "ada",
            {"replies": True, "labels": {"lab.class": "w"}},
        ),
    ]

    def refuse(*_: object, **__: object) -> None:
        raise LabError("ada: the kernel has no packet filter")

    monkeypatch.setattr(spawner, "block_container", refuse)
    with pytest.raises(LabError, match="no packet filter"):  # so that the seat does not start
        asyncio.run(seat.start_object())
