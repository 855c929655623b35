"""The containers, networks and volumes that a class asks the engine for."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest

from lab.backends.engine.client import Engine
from lab.classroom import containers
from lab.classroom.config import Tls
from lab.classroom.containers import Containers
from lab.classroom.engine import (
    contents,
    create_networks,
    remove_all,
    start_proxy,
)
from lab.errors import LabError
from tests.support.classes import a_plan, certificate, created, own_state, stored  # noqa: F401

PLAN = a_plan()


class Thing:
    """A container, a network or a volume."""

    def __init__(self, name: str, engine: Recorder) -> None:
        self.name = self.id = name
        self._engine = engine

    def __getattr__(self, action: str) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            self._engine.events.append((action, self.name, given, options))
            if (action, self.name) == self._engine.fails:
                raise docker.errors.APIError("no space left")
            if (action, self.name) == self._engine.gone:
                raise docker.errors.NotFound("gone")
            return self._engine.accepts

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

        def container(image: str, command: list[str], *, name: str, **options: Any) -> Thing:
            return create(name, command=command, **options)

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


@pytest.fixture
def engine() -> Recorder:
    return Recorder()


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    found = certificate(tmp_path)
    found.certificate.write_text("certificate")
    found.key.write_text("key")
    return found


def test_only_the_proxy_s_network_leads_out_of_the_engine(engine: Recorder) -> None:
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


def test_the_proxy_has_few_rights_and_one_published_port(engine: Recorder) -> None:
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


def test_the_proxy_gets_its_own_copy_of_the_key(engine: Recorder, tls: Tls) -> None:
    start_proxy(engine, a_plan(tls=tls), "lab-class:cpu", "secret")
    (upload,) = [event for event in engine.events if event[0] == "put_archive"]
    with tarfile.open(fileobj=io.BytesIO(upload[2][1])) as archive:
        assert {(each.name, each.uid, each.mode) for each in archive} == {
            (name, 1000, 0o400) for name in ("certificate.pem", "key.pem")
        }
        assert archive.extractfile("key.pem").read() == b"key"  # type: ignore[union-attr]
    engine.accepts = False
    with pytest.raises(LabError, match="the engine refused the certificate; start the class again"):
        start_proxy(engine, a_plan(tls=tls), "lab-class:cpu", "secret")


def test_what_can_be_removed_is_removed(engine: Recorder) -> None:
    things = [Thing(name, engine) for name in ("n1", "n2", "n3", "v1")]
    engine.things = {"networks": things[:3], "volumes": things[3:]}
    assert contents(engine, "w") == {"container": 1, "network": 3, "volume": 1}
    engine.fails, engine.gone = ("remove", "n1"), ("remove", "n2")
    with pytest.raises(LabError, match="removing n1 of the networks: no space left"):
        remove_all(engine, "w")
    removed = [event[1] for event in engine.events if event[0] == "remove"]
    assert removed == ["c1", "n1", "n2", "n3", "v1"]


@pytest.mark.parametrize(
    ("states", "is_stopped"), [(["created"], True), (["created", "running"], False), ([], True)]
)
def test_a_seat_without_a_running_container_is_stopped(
    states: list[str], *, is_stopped: bool, monkeypatch: pytest.MonkeyPatch, engine: Recorder
) -> None:
    found = [SimpleNamespace(status=each) for each in states]
    monkeypatch.setattr(engine, "containers", lambda *labels: found if len(labels) == 2 else [])
    monkeypatch.setattr(containers, "Engine", lambda: engine)
    created()
    assert Containers(stored()).is_stopped("ada") is is_stopped
