"""JupyterHub's settings for a class: who may sign in, what a seat may do, and what `lab` may."""

from __future__ import annotations

import asyncio
import dbm
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
from dockerspawner import DockerSpawner
from firstuseauthenticator import FirstUseAuthenticator
from jupyterhub import orm
from jupyterhub.objects import Hub
from syrupy.assertion import SnapshotAssertion
from traitlets.config import Config

from lab.classroom import hub, names
from lab.classroom.config import TEACHER
from lab.classroom.planning import ClassPlan
from lab.classroom.state import ClassDir
from tests.support.classes import CLUSTER, a_plan, certificate, created, own_state  # noqa: F401


def configured(folder: ClassDir) -> Config:
    config = Config()
    hub.configure(config, folder)
    return config


# ---- Signing in


def authenticator(config: Config) -> FirstUseAuthenticator:
    """The authenticator of JupyterHub, which knows the users of the settings."""
    db = orm.new_session_factory("sqlite:///:memory:")()
    for name in config.FirstUseAuthenticator.allowed_users:
        db.add(orm.User(name=name))
    db.commit()
    return FirstUseAuthenticator(config=config, db=db)


def signs_in(gate: FirstUseAuthenticator, name: str, password: str) -> bool:
    data = {"username": name, "password": password}
    found = asyncio.run(gate.get_authenticated_user(SimpleNamespace(), data))
    return found is not None


def test_only_the_password_of_a_seat_opens_it_and_no_stranger_chooses_one() -> None:
    folder = created()
    configured(folder)
    gate, seats = authenticator(configured(folder)), folder.tokens().seats  # after a restart
    assert set(seats) == {"ada", "bob", TEACHER}
    for name, token in seats.items():
        assert signs_in(gate, name, token)
        others = {each for each in seats.values() if each != token}
        assert not any(signs_in(gate, name, each) for each in (*others, "", token[:-1]))
    strangers = ("eve", "admin", "", "ada,bob", "../ada")
    assert not any(signs_in(gate, name, "a long password") for name in strangers)
    files = list(folder.path.glob("passwords*"))
    assert files
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    content = b"".join(path.read_bytes() for path in files)
    assert not any(token.encode() in content for token in seats.values())
    with dbm.open(str(folder.path / "passwords")) as database:
        assert {key.decode() for key in database.keys()} == set(seats)  # noqa: SIM118


def test_the_teacher_starts_and_stops_seats_and_is_no_admin() -> None:
    """As an admin, the teacher would open every seat, also for a page that a student wrote."""
    settings = configured(created()).JupyterHub
    starts_seats = ["list:users", "read:users:activity", "servers"]  # and opens none
    assert settings.load_roles == [
        {"name": "lab", "services": ["lab"], "scopes": starts_seats},
        {"name": TEACHER, "users": [TEACHER], "scopes": ["admin-ui", *starts_seats]},
    ]
    page = settings.default_url
    for name, expected in ((TEACHER, "/hub/admin"), ("ada", "/hub/spawn")):
        handler = SimpleNamespace(
            current_user=SimpleNamespace(name=name), hub=SimpleNamespace(base_url="/hub/")
        )
        assert page(handler) == expected
    stranger = SimpleNamespace(current_user=None, hub=SimpleNamespace(base_url="/hub/"))
    assert page(stranger) == "/hub/spawn"


# ---- Seats


def container_of(plan: ClassPlan, name: str) -> dict[str, Any]:
    """What the spawner asks the engine for."""
    config, asked = configured(created(plan)), {}

    class Spawner(DockerSpawner):
        client = docker.APIClient("tcp://127.0.0.1:1", version="1.41")  # nothing is sent

        async def docker(self, method: str, *args: object, **options: Any) -> Any:
            asked[method] = options
            return {"Id": "1"}

    user = SimpleNamespace(name=name, escaped_name=name, id=1, url="", settings={}, db=None)
    seat = Spawner(
        config=config,
        user=user,
        hub=Hub(),
        orm_spawner=SimpleNamespace(name="", server=None, state={}, user_options={}),
        oauth_client_id="x",
        api_token="t",  # noqa: S106
    )
    seat.pre_spawn_hook(seat)
    asyncio.run(seat.create_object())
    return dict(asked["create_container"])


def test_a_seat_has_few_rights_and_only_its_own_gpus(snapshot: SnapshotAssertion) -> None:
    plan = a_plan(("ada", "bob"), 2, cpus=1.5, memory="2GiB")
    found = container_of(plan, "bob")
    host = found["host_config"]
    assert host["CapDrop"] == ["ALL"]
    assert not {"CapAdd", "Privileged", "PortBindings"} & {key for key in host if host[key]}
    assert host["ReadonlyRootfs"] is True
    assert host["NetworkMode"] == found["name"] == names.seat_object("w", "bob")
    (devices,) = host["DeviceRequests"]
    assert devices["DeviceIDs"] == list(plan.seats[1].gpus)
    assert "CUDA_VISIBLE_DEVICES" not in found["environment"]
    assert int(host["Memory"]) == host["MemorySwap"] == 2 << 30  # no swap
    assert found["labels"] == {names.CLASS: "w", names.SEAT: "bob"}
    assert found["environment"]["LAB_CLUSTER_CONFIG"] == CLUSTER  # braces are no template
    assert not {"PATH", "HOME", "LAB_STATE"} & set(found["environment"])
    assert json.loads(json.dumps(host)) == snapshot
    assert found["user"] == "1000:1000"


def test_a_seat_without_gpus_and_limits() -> None:
    found = container_of(a_plan(cpus=None, memory=None), "ada")
    host, variables = found["host_config"], found["environment"]
    assert not {"CpuQuota", "Memory", "MemorySwap"} & set(host)
    assert not host.get("DeviceRequests")
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "void"  # also in an image with CUDA
    assert variables["CUDA_VISIBLE_DEVICES"] == "-1"
    assert variables["LAB_LESSONS"] == "async,sync"


def test_jupyterhub_listens_only_in_the_proxy_s_network(tmp_path: Path) -> None:
    config = configured(created(a_plan(tls=certificate(tmp_path))))
    assert config.JupyterHub.hub_ip == "10.89.0.1"
    assert config.JupyterHub.bind_url == "https://:8000"
    assert config.ConfigurableHTTPProxy.api_url == "http://10.89.0.2:8001"
    assert not config.ConfigurableHTTPProxy.should_start
