"""JupyterHub's settings for a class: who may sign in, what a seat may do, and what `lab` may."""

from __future__ import annotations

import asyncio
import dbm
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import bcrypt
import docker
import pytest
from dockerspawner import DockerSpawner
from firstuseauthenticator import FirstUseAuthenticator
from jupyterhub import orm
from jupyterhub.objects import Hub
from traitlets.config import Config

from lab.classroom import hub, names
from lab.classroom.environment import _start_seats
from lab.classroom.hub_api import HubApi
from lab.classroom.planning import ClassPlan
from lab.classroom.state import TEACHER, ClassDir
from lab.errors import LabError
from tests.support.agents import PATIENCE_S, ROOT, wait_for
from tests.support.classes import CLUSTER, a_plan, certificate, created


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


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
    gate, seats = authenticator(configured(folder)), folder.tokens().seats
    assert set(seats) == {"ada", "bob", TEACHER}
    for name, token in seats.items():
        assert signs_in(gate, name, token)
        others = {each for each in seats.values() if each != token}
        for wrong in (*others, "", "x" * 12, token[:-1], token.upper(), f"{token} "):
            assert not signs_in(gate, name, wrong)


def test_strangers_cannot_sign_in_nor_choose_a_password() -> None:
    folder = created()
    gate = authenticator(configured(folder))
    for name in ("eve", "admin", "root", "", "ada,bob", "../ada"):
        assert not signs_in(gate, name, "a long password")
    with dbm.open(str(folder.path / "passwords")) as database:
        assert {key.decode() for key in database.keys()} == {"ada", "bob", TEACHER}  # noqa: SIM118


def test_no_password_is_stored_as_text() -> None:
    folder = created()
    config, seats = configured(folder), folder.tokens().seats
    files = list(folder.path.glob("passwords*"))
    assert files
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    content = b"".join(path.read_bytes() for path in files)
    assert not any(token.encode() in content for token in seats.values())
    with dbm.open(config.FirstUseAuthenticator.dbm_path) as database:
        assert all(bcrypt.checkpw(seats[name].encode(), database[name]) for name in seats)


def test_a_restart_keeps_the_passwords() -> None:
    folder = created()
    configured(folder)
    gate = authenticator(configured(folder))
    assert all(signs_in(gate, *each) for each in folder.tokens().seats.items())


def test_only_the_teacher_sees_the_admin_page_first() -> None:
    page = configured(created()).JupyterHub.default_url
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


def test_a_seat_has_few_rights_and_only_its_own_gpus() -> None:
    plan = a_plan(("ada", "bob"), 2, cpus=1.5, memory="2GiB")
    found = container_of(plan, "bob")
    host = found["host_config"]
    assert host["CapDrop"] == ["ALL"]
    assert not host.get("CapAdd")
    assert not host.get("Privileged")
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["ReadonlyRootfs"] is True
    assert host["PidsLimit"] == 4096
    assert host["Tmpfs"] == {"/tmp": ""}
    limits = {"max-size": "10m", "max-file": "1"}
    assert host["LogConfig"] == {"Type": "json-file", "Config": limits}
    assert host["NetworkMode"] == "lab-class-w-bob"
    assert not host.get("PortBindings")
    assert host["Binds"] == ["lab-class-w-bob:/home/student:rw"]
    assert found["user"] == "1000:1000"
    (devices,) = host["DeviceRequests"]
    assert devices["DeviceIDs"] == list(plan.seats[1].gpus)
    assert devices["Count"] == 0
    assert set(plan.seats[0].gpus).isdisjoint(devices["DeviceIDs"])
    assert found["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "CUDA_VISIBLE_DEVICES" not in found["environment"]


def test_a_seat_without_gpus_sees_none_even_in_a_cuda_image() -> None:
    found = container_of(a_plan(), "ada")
    assert not found["host_config"].get("DeviceRequests")
    assert found["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert found["environment"]["CUDA_VISIBLE_DEVICES"] == "-1"


def test_the_limits_of_a_seat() -> None:
    host = container_of(a_plan(cpus=1.5, memory="2GiB"), "ada")["host_config"]
    assert (host["CpuQuota"], host["CpuPeriod"]) == (150_000, 100_000)
    assert int(host["Memory"]) == host["MemorySwap"] == 2 << 30  # no swap


def test_a_seat_without_limits() -> None:
    host = container_of(a_plan(cpus=None, memory=None), "ada")["host_config"]
    assert not {"CpuQuota", "Memory", "MemorySwap"} & set(host)


def test_a_seat_gets_the_lessons_and_the_cluster_config_as_they_are() -> None:
    variables = container_of(a_plan(), "ada")["environment"]
    assert variables["LAB_LESSONS"] == "async,sync"
    assert variables["LAB_CLUSTER_CONFIG"] == CLUSTER  # braces are no template
    assert not {"PATH", "HOME", "LAB_STATE"} & set(variables)


def test_a_seat_can_be_found_by_its_labels() -> None:
    found = container_of(a_plan(), "ada")
    assert found["labels"][names.CLASS] == "w"
    assert found["labels"][names.SEAT] == "ada"
    assert found["name"] == names.seat_object("w", "ada")


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
        wait_for(lambda: api.answers() or process.poll() is not None, PATIENCE_S)
        assert process.poll() is None, folder.log.read_text()[-3000:]
        yield api
    finally:
        process.terminate()  # it stops the seats
        process.wait(PATIENCE_S)


def server(api: HubApi, seat: str) -> Mapping[str, Any]:
    (found,) = (user for user in api.users() if user["name"] == seat)
    return dict(found["servers"].get("", {}))


def test_jupyterhub_starts_and_stops_seats_for_lab(tmp_path: Path) -> None:
    folder = created(a_plan(SEATS))
    with jupyterhub(folder, tmp_path) as api:
        assert {user["name"] for user in api.users()} == {TEACHER, *SEATS}
        good = [seat for seat in SEATS if seat != "bad"]
        lines: list[str] = []
        # More seats than JupyterHub starts at once.
        _start_seats(api, folder, good, lines.append)
        assert sorted(line.partition(":")[0] for line in lines) == good
        assert lines[-1].endswith(": ready (6 of 6)")
        assert all("last_activity" in user for user in api.users())
        with pytest.raises(LabError, match="JupyterHub refused: ada is already running"):
            api.start("ada")
        api.stop("ada")
        wait_for(lambda: not server(api, "ada"), PATIENCE_S)
        api.stop("ada")  # a stopped seat can be stopped again
        api.stop("bad")  # and one that never ran
        _start_seats(api, folder, ["ada"], lines.append)
        assert server(api, "ada")["ready"]
        with pytest.raises(LabError, match=r"bad does not start: .*no such GPU"):
            _start_seats(api, folder, ["bad"], lines.append)
        with pytest.raises(LabError, match="JupyterHub refused: HTTP Error 404: Not Found"):
            api.stop("eve")


def test_what_lab_may_request(tmp_path: Path) -> None:
    """The token of `lab` gives no more than lists, starts and stops."""
    folder = created()
    with jupyterhub(folder, tmp_path) as api:
        for method, path in (
            ("POST", "users/eve"),
            ("DELETE", "users/ada"),
            ("PATCH", "users/ada"),
            ("POST", "users/ada/tokens"),
            ("GET", "users/ada/tokens"),
            ("GET", "groups"),
            ("GET", "services"),
            ("POST", "shutdown"),
        ):
            with pytest.raises(LabError, match=r"refused: .*(?:40[34]|scope|permission)"):
                api._request(method, path)
        with pytest.raises(LabError, match="JupyterHub refused: "):
            HubApi(api.url, "0" * 64).users()


class Browser:
    """A browser that is signed in to JupyterHub."""

    def __init__(self, folder: ClassDir, api: HubApi, user: str) -> None:
        self._hub = api.url.removesuffix("/api")
        self._cookies = CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(self._cookies)
        )
        self.request("GET", "/login")
        form = {"username": user, "password": folder.tokens().seats[user], "_xsrf": self._xsrf()}
        assert self.request("POST", "/login", urlencode(form).encode())[0] == 200

    def _xsrf(self) -> str:
        return next(each.value or "" for each in self._cookies if each.name == "_xsrf")

    def request(self, method: str, path: str, data: bytes | None = None) -> tuple[int, str]:
        """The status and the content of an answer of JupyterHub."""
        headers = {} if path == "/login" else {"X-XSRFToken": self._xsrf()}
        url = f"{self._hub}{path}"
        asked = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
        try:
            with self._opener.open(asked, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def test_the_teacher_starts_and_stops_seats_and_opens_none(tmp_path: Path) -> None:
    """A page that a student wrote cannot open other seats as the teacher."""
    folder = created()
    opens = "/api/oauth2/authorize?response_type=code&client_id=jupyterhub-user-{}"
    with jupyterhub(folder, tmp_path) as api:
        teacher, ada = Browser(folder, api, TEACHER), Browser(folder, api, "ada")
        code, page = teacher.request("GET", "/admin")
        assert code == 200
        assert 'a[href*="/user/"]' in page, "the links to the seats are hidden"
        assert "private window" in page
        assert ada.request("GET", "/admin")[0] == 403
        assert teacher.request("POST", "/api/users/bob/server")[0] in {201, 202}
        wait_for(lambda: server(api, "bob").get("ready"), "bob does not start")
        code, users = teacher.request("GET", "/api/users?include_stopped_servers=1")
        assert code == 200
        found = {each["name"]: each["servers"] for each in json.loads(users)}
        assert found["bob"][""]["ready"]
        assert set(found) == {TEACHER, "ada", "bob"}
        wait_for(lambda: server(api, "ada").get("ready"), "signing in has started the seat")
        assert ada.request("GET", opens.format("ada"))[0] != 403, "the test can succeed"
        for seat in ("ada", "bob"):
            assert teacher.request("GET", opens.format(seat))[0] == 403
        for method, path in (
            ("POST", "users/ada/tokens"),
            ("PATCH", "users/ada"),
            ("POST", "users/eve"),
            ("POST", "shares/ada/"),
            ("POST", "shutdown"),
        ):
            assert teacher.request(method, f"/api/{path}", b"{}")[0] in {403, 404}
        assert teacher.request("DELETE", "/api/users/bob/server")[0] in {202, 204}
        wait_for(lambda: not server(api, "bob"), "bob does not stop")
