"""The containers, networks and volumes that a class asks the engine for."""

from __future__ import annotations

import io
import tarfile
import time
import zipfile
from pathlib import Path
from unittest.mock import Mock

import docker.errors
import pytest

from lab.backends.engine.client import Engine
from lab.base.errors import LabError
from lab.teach.classroom import containers as module
from lab.teach.classroom import names
from lab.teach.classroom.containers import Containers
from tests.support.classes import a_plan, certificate, created, own_state, stored  # noqa: F401

PLAN = a_plan()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Mock:
    found = Mock()
    found.containers.create.return_value.id = "c1"
    monkeypatch.setattr(Engine, "client", lambda _: found)
    monkeypatch.setattr(Engine, "containers", lambda *_: [])
    return found


def thing(name: str, refusal: Exception | None = None) -> Mock:
    found = Mock(id=name, labels={}, remove=Mock(side_effect=refusal))
    found.name = name
    return found


def test_only_the_proxy_s_network_leads_out_of_the_engine(client: Mock) -> None:
    Containers(stored(PLAN)).create_networks()
    networks = {call.args[0]: call.kwargs for call in client.networks.create.call_args_list}
    assert {name: each["internal"] for name, each in networks.items()} == {
        "lab-class-w": False,
        "lab-class-w-ada": True,
        "lab-class-w-bob": True,
    }
    assert networks["lab-class-w"]["options"] == {
        "com.docker.network.bridge.enable_ip_masquerade": "false"
    }
    (pool,) = networks["lab-class-w-bob"]["ipam"]["Config"]
    assert (pool["Subnet"], pool["Gateway"]) == ("10.89.0.32/28", "10.89.0.33")
    assert networks["lab-class-w-ada"]["labels"] == {"lab.class": "w", "lab.seat": "ada"}


def test_the_proxy_has_few_rights_and_one_published_port(client: Mock) -> None:
    token = created(PLAN).tokens().proxy
    Containers(stored(PLAN)).start_proxy()
    proxy, relay = client.containers.create.call_args_list
    assert proxy.kwargs["ports"] == {"8000/tcp": ("127.0.0.1", 8000)}
    assert "ports" not in relay.kwargs
    assert ["--host-routing" in call.args[1] for call in (proxy, relay)] == [True, False]
    assert ["--keep-alive-timeout" in call.args[1] for call in (proxy, relay)] == [False, True]
    assert relay.kwargs["network_mode"] == "container:c1"
    for call, address in ((proxy, "10.89.0.2"), (relay, "127.0.0.1")):
        assert call.kwargs["cap_drop"] == ["ALL"]
        assert call.kwargs["read_only"] is True
        assert call.kwargs["log_config"]["config"]["max-size"] == "10m"
        assert call.kwargs["security_opt"] == ["no-new-privileges:true"]
        assert call.kwargs["environment"] == {"CONFIGPROXY_AUTH_TOKEN": token}
        command = call.args[1]
        assert token not in command  # other users see a command
        assert command[command.index("--api-ip") + 1] == address
    connect = client.networks.get.return_value.connect
    assert [call.args for call in client.networks.get.call_args_list] == [
        ("lab-class-w-ada",), ("lab-class-w-bob",),
    ]  # fmt: skip
    assert [call.kwargs["ipv4_address"] for call in connect.call_args_list] == [
        "10.89.0.18", "10.89.0.34",
    ]  # fmt: skip
    # It starts in all networks.
    order = [name.rpartition(".")[2] for name, *_ in client.mock_calls]
    assert [each for each in order if each in {"connect", "start"}] == [
        "connect", "connect", "start", "start",
    ]  # fmt: skip


def test_the_proxy_is_ready_when_its_relays_listen(
    client: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = a_plan(cpu_runs=1)
    created(plan)
    own = [thing(f"lab-class-w.{each}") for each in ("proxy", "relay-hub", "relay-queue")]
    seat = thing("lab-class-w-ada")
    seat.labels = {names.SEAT: "ada"}
    for each in (*own, seat):
        each.status = "running"
    monkeypatch.setattr(Engine, "containers", lambda *_: [seat, *own])
    listening = {names.PUBLIC_PORT, names.PROXY_API_PORT, names.RELAY_PORT}

    def accepts(address: str, port: int) -> bool:
        assert address == names.proxy_address(plan.proxy_network)
        return port in listening

    monkeypatch.setattr(module, "_accepts", accepts)
    monkeypatch.setattr(time, "sleep", lambda _: listening.add(names.QUEUE_RELAY_PORT))
    backend = Containers(stored(plan))
    for ended in own:
        ended.status, ended.logs.return_value = "exited", b"no such \x1bport\n"
        with pytest.raises(LabError, match=r"the proxy is not ready: no such \\x1bport"):
            backend.wait_for_proxy()
        ended.status = "running"
    backend.wait_for_proxy()
    assert names.QUEUE_RELAY_PORT in listening, "it waited until the relay listened"


def test_the_proxy_gets_its_own_copy_of_the_key(client: Mock, tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    tls.certificate.write_text("certificate")
    tls.key.write_text("key")
    plan = a_plan(tls=tls)
    created(plan)
    Containers(stored(plan)).start_proxy()
    put_archive = client.containers.create.return_value.put_archive
    with tarfile.open(fileobj=io.BytesIO(put_archive.call_args.args[1])) as archive:
        assert {(each.name, each.uid, each.mode) for each in archive} == {
            (name, 1000, 0o400) for name in ("certificate.pem", "key.pem")
        }
        assert archive.extractfile("key.pem").read() == b"key"
    put_archive.return_value = False
    with pytest.raises(LabError, match="the engine refused the certificate; start the class again"):
        Containers(stored(plan)).start_proxy()


def test_what_can_be_removed_is_removed(client: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal, gone = docker.errors.APIError("no space left"), docker.errors.NotFound("gone")
    networks = [thing("n1", refusal), thing("n2", gone), thing("n3")]
    container, volume = thing("c1"), thing("v1")
    client.networks.list.return_value, client.volumes.list.return_value = networks, [volume]
    client.containers.get.return_value = container
    monkeypatch.setattr(Engine, "containers", lambda *_: [container])
    seats = Containers(stored(PLAN))
    with pytest.raises(LabError, match="removing n1 of the networks: no space left"):
        seats.remove()
    for each in (container, *networks, volume):
        each.remove.assert_called_once()


@pytest.mark.parametrize(
    ("states", "is_stopped"), [(["created"], True), (["created", "running"], False), ([], True)]
)
def test_a_seat_without_a_running_container_is_stopped(
    states: list[str], *, is_stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(_: Engine, *labels: str) -> list[Mock]:
        assert labels == ("lab.class=w", "lab.seat=ada")
        return [Mock(status=each) for each in states]

    monkeypatch.setattr(Engine, "containers", found)
    created()
    assert Containers(stored()).is_stopped("ada") is is_stopped


def test_nothing_is_read_of_a_seat_without_its_volume(client: Mock, tmp_path: Path) -> None:
    """The engine would make one, without a label and without a limit."""
    client.volumes.get.side_effect = docker.errors.NotFound("no such volume")
    with zipfile.ZipFile(tmp_path / "w.zip", "w") as archive:
        Containers(stored(PLAN)).save("ada", archive, "ada")
    client.containers.create.assert_not_called()
