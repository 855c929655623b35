"""JupyterHub's settings for a class: who may sign in, what a seat may do, and what `lab` may."""

from __future__ import annotations

import asyncio
import dbm
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bcrypt
import docker
import pytest
from dockerspawner import DockerSpawner
from firstuseauthenticator import FirstUseAuthenticator
from jupyterhub import orm
from jupyterhub.objects import Hub
from syrupy.assertion import SnapshotAssertion
from traitlets.config import Config

from lab.classroom import hub, names
from lab.classroom.environment import _start_seats
from lab.classroom.hub_api import HubApi
from lab.classroom.planning import ClassPlan
from lab.classroom.state import TEACHER, ClassDir
from lab.errors import LabError
from tests.support.agents import PATIENCE_S, ROOT, wait_for
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


def test_only_the_password_of_a_seat_opens_it() -> None:
    folder = created()
    configured(folder)
    gate, seats = authenticator(configured(folder)), folder.tokens().seats  # after a restart
    assert set(seats) == {"ada", "bob", TEACHER}
    for name, token in seats.items():
        assert signs_in(gate, name, token)
        others = {each for each in seats.values() if each != token}
        wrong = (*others, "", "x" * 12, token[:-1], token.upper(), f"{token} ")
        assert not any(signs_in(gate, name, each) for each in wrong)
    strangers = ("eve", "admin", "root", "", "ada,bob", "../ada")
    assert not any(signs_in(gate, name, "a long password") for name in strangers)


def test_no_password_is_stored_as_text_and_no_stranger_can_choose_one() -> None:
    folder = created()
    config, seats = configured(folder), folder.tokens().seats
    files = list(folder.path.glob("passwords*"))
    assert files
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    content = b"".join(path.read_bytes() for path in files)
    assert not any(token.encode() in content for token in seats.values())
    with dbm.open(config.FirstUseAuthenticator.dbm_path) as database:
        assert {key.decode() for key in database.keys()} == set(seats)  # noqa: SIM118
        assert all(bcrypt.checkpw(seats[name].encode(), database[name]) for name in seats)


def test_the_teacher_starts_and_stops_seats_and_is_no_admin() -> None:
    """As an admin, the teacher would open every seat, also for a page that a student wrote."""
    settings = configured(created()).JupyterHub
    (role,) = (each for each in settings.load_roles if TEACHER in each.get("users", ()))
    assert role["scopes"] == ["admin-ui", "list:users", "read:users:activity", "servers"]
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

    class Spawner(DockerSpawner):  # type: ignore[misc]
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


def test_the_teacher_has_no_seat() -> None:
    assign = configured(created()).DockerSpawner.pre_spawn_hook
    with pytest.raises(RuntimeError, match="teacher has no seat"):
        assign(SimpleNamespace(user=SimpleNamespace(name=TEACHER)))


def test_jupyterhub_listens_only_in_the_proxy_s_network(tmp_path: Path) -> None:
    config = configured(created(a_plan(tls=certificate(tmp_path))))
    assert config.JupyterHub.hub_ip == "10.89.0.1"
    assert config.JupyterHub.bind_url == "https://:8000"
    assert config.ConfigurableHTTPProxy.api_url == "http://10.89.0.2:8001"
    assert not config.ConfigurableHTTPProxy.should_start


# ---- A real JupyterHub, without a proxy and without containers

CONFIG = """
import os, sys
from jupyterhub.proxy import Proxy
from jupyterhub.spawner import SimpleLocalProcessSpawner
from lab.classroom.hub import configure
from lab.classroom.state import ClassDir

class NoProxy(Proxy):
    async def add_route(self, routespec, target, data): ROUTES[routespec] = dict(
        routespec=routespec, target=target, data=data)
    async def delete_route(self, routespec): ROUTES.pop(routespec, None)
    async def get_all_routes(self): return ROUTES
    async def check_routes(self, *args, **options): pass

class Seat(SimpleLocalProcessSpawner):
    async def start(self):
        if self.user.name == 'bad':
            raise OSError('no such GPU')
        return await super().start()

ROUTES = {}
c = get_config()
configure(c, ClassDir('w'))
c.JupyterHub.hub_ip, c.JupyterHub.hub_port = '127.0.0.1', int(os.environ['PORT'])
c.JupyterHub.cleanup_servers = True  # this test must leave nothing
c.JupyterHub.proxy_class = NoProxy
c.NoProxy.should_start = False
c.JupyterHub.spawner_class = Seat
c.Seat.cmd = [sys.executable, os.environ['SEAT']]
c.Seat.pre_spawn_hook = None
c.Seat.http_timeout = 60
c.Seat.home_dir_template = os.environ['HOMES'] + '/{username}'
c.Seat.poll_interval = 1
"""
SEAT = """
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlparse
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header('X-JupyterHub-Version', '6.1.1')
        self.end_headers()
    do_HEAD = do_GET
url = urlparse(os.environ['JUPYTERHUB_SERVICE_URL'])
HTTPServer((url.hostname, url.port), Answer).serve_forever()
"""
SEATS = ("ada", "bad", "bob", "cy", "dan", "eva", "flo")


@contextmanager
def jupyterhub(folder: ClassDir, place: Path) -> Iterator[HubApi]:
    """A real JupyterHub with the settings of a class, on a free port of this host."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (place / "config.py").write_text(CONFIG)
    (place / "seat.py").write_text(SEAT)
    (place / "homes").mkdir()
    variables = {"PORT": str(port), "SEAT": str(place / "seat.py"), "HOMES": str(place / "homes")}
    with folder.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "--config", str(place / "config.py")],
            cwd=place,
            env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        api = HubApi(f"http://127.0.0.1:{port}/hub/api", folder.tokens().service)
        wait_for(lambda: api.answers() or process.poll() is not None, "no JupyterHub")
        assert process.poll() is None, folder.log.read_text()[-3000:]
        yield api
    finally:
        process.terminate()  # it stops the seats
        process.wait(PATIENCE_S)


def server(api: HubApi, seat: str) -> Mapping[str, Any]:
    (found,) = (user for user in api.users() if user["name"] == seat)
    return dict(found["servers"].get("", {}))


def test_what_lab_may_request(tmp_path: Path) -> None:
    """Its token gives no more than lists, starts and stops."""
    folder = created(a_plan(SEATS))
    with jupyterhub(folder, tmp_path) as api:
        assert {user["name"] for user in api.users()} == {TEACHER, *SEATS}
        good = [seat for seat in SEATS if seat != "bad"]
        lines: list[str] = []
        # More seats than JupyterHub starts at once.
        _start_seats(api, folder, good, lines.append)
        assert sorted(line.partition(":")[0] for line in lines) == good
        assert all("last_activity" in user for user in api.users())
        with pytest.raises(LabError, match="JupyterHub refused: ada is already running"):
            api.start("ada")
        api.stop("ada")
        wait_for(lambda: not server(api, "ada"), "ada does not stop")
        api.stop("ada")  # a stopped seat can be stopped again
        api.stop("bad")  # and one that never ran
        _start_seats(api, folder, ["ada"], lines.append)
        assert server(api, "ada")["ready"]
        with pytest.raises(LabError, match=r"bad does not start: .*no such GPU"):
            _start_seats(api, folder, ["bad"], lines.append)
        with pytest.raises(LabError, match="JupyterHub refused: HTTP Error 404: Not Found"):
            api.stop("eve")
        for method, path in (
            ("POST", "users/eve"),
            ("DELETE", "users/ada"),
            ("PATCH", "users/ada"),
            ("GET", "users/ada/tokens"),
            ("GET", "groups"),
            ("POST", "shutdown"),
        ):
            with pytest.raises(LabError, match=r"refused: .*(?:40[34]|scope|permission)"):
                api._request(method, path)
        with pytest.raises(LabError, match="JupyterHub refused: "):
            HubApi(api.url, "0" * 64).users()
