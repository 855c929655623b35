"""JupyterHub's settings for a class: who may sign in, what a seat may do, and what `lab` may."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import docker
import pytest
from dockerspawner import DockerSpawner
from jupyterhub.objects import Hub
from tornado.web import HTTPError
from traitlets.config import Config

from lab.teach.classroom import hub, names
from lab.teach.classroom.class_dir import ClassDir
from lab.teach.classroom.config import TEACHER
from lab.teach.classroom.hub import AT_ONCE, MOST_FAILED, SeatAuthenticator, SeatSpawner
from lab.teach.classroom.planning import ClassPlan
from tests.support.agents import ROOT
from tests.support.classes import CLUSTER, a_plan, certificate, created, own_state  # noqa: F401


def configured(folder: ClassDir) -> Config:
    config = Config()
    hub.configure(config, folder)
    return config


def authenticator(folder: ClassDir) -> SeatAuthenticator:
    return SeatAuthenticator(config=configured(folder))


def signs_in(
    gate: SeatAuthenticator, name: str, password: str, at: str = "192.0.2.1", origin: str = ""
) -> bool:
    headers = {"Origin": origin} if origin else {}
    request = SimpleNamespace(headers=headers, host="lab.example.org:8443", remote_ip=at)
    data = {"username": name, "password": password}
    found = asyncio.run(gate.get_authenticated_user(SimpleNamespace(request=request), data))
    assert found is None or (found["name"], found["admin"]) == (name, None)
    return found is not None


def refusal(*given: Any) -> int:
    with pytest.raises(HTTPError) as caught:
        signs_in(*given)
    return int(caught.value.status_code)


def test_only_the_password_of_a_seat_opens_it_and_no_stranger_chooses_one() -> None:
    folder = created()
    gate, seats = authenticator(folder), folder.tokens().seats
    assert set(seats) == {"ada", "bob", TEACHER}
    for name, token in seats.items():
        assert signs_in(gate, name, token)
        others = {each for each in seats.values() if each != token}
        assert not any(signs_in(gate, name, each) for each in (*others, "", token[:-1], "é"))
    strangers = ("eve", "admin", "", "ada,bob", "../ada")
    assert not any(signs_in(gate, name, "a long password") for name in strangers)
    assert not signs_in(gate, "ada", "x" * 72)
    assert refusal(gate, "ada", "é" * 36 + "x") == 400


def test_failed_attempts_are_limited_for_their_user_and_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(hub, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    folder = created()
    gate, seats = authenticator(folder), folder.tokens().seats
    for _ in range(MOST_FAILED):
        assert signs_in(gate, "ada", seats["ada"]), "a right password is no failed attempt"
        assert not signs_in(gate, "ada", "guess")
    assert refusal(gate, "ada", seats["ada"]) == 429
    assert signs_in(gate, "ada", seats["ada"], "192.0.2.2"), "elsewhere"
    assert signs_in(gate, "bob", seats["bob"])
    clock[0] += 61
    assert signs_in(gate, "ada", seats["ada"])


def test_no_page_of_another_host_signs_its_visitor_in() -> None:
    folder = created()
    gate, token = authenticator(folder), folder.tokens().seats["ada"]
    assert signs_in(gate, "ada", token, origin="https://lab.example.org:8443")
    for host in ("bob.lab.example.org:8443", "lab.example.org", "lab.example.org:84"):
        assert refusal(gate, "ada", token, "192.0.2.1", f"https://{host}") == 403
    assert refusal(gate, "ada", token, "192.0.2.1", "null") == 403


def test_the_teacher_starts_and_stops_seats_and_is_no_admin() -> None:
    """As an admin, the teacher would open every seat, also for a page that a student wrote."""
    config = configured(created())
    settings = config.JupyterHub
    starts_seats = ["list:users", "read:users:activity", "servers"]  # and opens none
    rights = ("access:servers", "read:users", "servers", "users:activity")
    own = [f"{right}!user" for right in rights]
    assert settings.load_roles == [
        {"name": "user", "scopes": own},
        {"name": "lab", "services": ["lab"], "scopes": [*starts_seats, "proxy"]},
        {"name": TEACHER, "users": [TEACHER], "scopes": ["admin-ui", *starts_seats]},
    ]
    page = settings.default_url
    for name, expected in ((TEACHER, "/hub/admin"), ("ada", "/hub/spawn")):
        handler = SimpleNamespace(
            current_user=SimpleNamespace(name=name), hub=SimpleNamespace(base_url="/hub/")
        )
        assert page(handler) == expected
    notebook = config.Spawner.default_url.removeprefix("/lab/tree/")
    assert (ROOT / notebook).is_file(), "JupyterLab would open its launcher"
    stranger = SimpleNamespace(current_user=None, hub=SimpleNamespace(base_url="/hub/"))
    assert page(stranger) == "/hub/spawn"


def test_cookies_are_those_of_one_host_wherever_browsers_can_check_it(tmp_path: Path) -> None:
    plan = a_plan(domain="lab.example.org")
    hosts = [configured(created(plan)).JupyterHub.cookie_host_prefix_enabled]
    rmtree(ClassDir("w").path)
    plan = a_plan(domain="lab.example.org", tls=certificate(tmp_path))
    hosts.append(configured(created(plan)).JupyterHub.cookie_host_prefix_enabled)
    assert hosts == [False, True]


def test_a_class_with_one_address_has_no_teacher_and_no_names_of_seats() -> None:
    config = configured(created(replace(a_plan(), domain="")))
    assert "subdomain_host" not in config.JupyterHub
    assert [role["name"] for role in config.JupyterHub.load_roles] == ["user", "lab"]
    assert config.SeatAuthenticator.allowed_users == {"ada", "bob"}


@pytest.mark.parametrize("has_queue", [False, True])
def test_jupyterhub_runs_the_services_of_a_class(
    has_queue: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {"DOCKER_HOST": "unix:///own/docker.sock", "XDG_RUNTIME_DIR": "/own/run"}
    for name, value in (needed | {"UNRELATED": "x"}).items():
        monkeypatch.setenv(name, value)
    config = configured(created(a_plan(gpus={"queue": True} if has_queue else 1)))
    _, *services = config.JupyterHub.services
    modules = [["-m", "lab.teach.classroom.queue.service", "w"]] * has_queue
    assert [each["command"][-3:] for each in services] == modules
    for each in services:
        assert "url" not in each, "the proxy has no route to it"
        assert needed.items() <= each["environment"].items()
        assert "UNRELATED" not in each["environment"]
    # No token of JupyterHub opens the queue, and none of the queue JupyterHub.
    scopes = {scope for role in config.JupyterHub.load_roles for scope in role["scopes"]}
    assert not any("queue" in scope for scope in scopes)
    assert "server_token_scopes" not in config.DockerSpawner


def container_of(plan: ClassPlan, name: str) -> dict[str, Any]:
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


def test_a_seat_that_is_reset_does_not_start() -> None:
    folder = created()
    start = configured(folder).DockerSpawner.pre_spawn_hook
    ada, bob = (SimpleNamespace(user=SimpleNamespace(name=name)) for name in ("ada", "bob"))
    folder.resetting("ada").touch()
    start(bob)
    with pytest.raises(RuntimeError, match="ada is being reset; try again later"):
        start(ada)
    folder.resetting("ada").unlink()
    start(ada)


def test_a_seat_starts_also_with_damaged_files_of_the_class() -> None:
    folder = created(a_plan(cpu_runs=1))
    start = configured(folder).DockerSpawner.pre_spawn_hook
    for name in ("class.json", "tokens.json"):
        (folder.path / name).write_text("{")
    ada = SimpleNamespace(user=SimpleNamespace(name="ada"))
    start(ada)
    assert "LAB_QUEUE" in ada.environment


def test_a_seat_has_few_rights_and_only_its_own_gpus() -> None:
    plan = a_plan(("ada", "bob"), 2, cpus=1.5, memory="2GiB")
    found = container_of(plan, "bob")
    name = names.seat_object("w", "bob")
    devices = found["host_config"].pop("DeviceRequests")
    assert [each["DeviceIDs"] for each in devices] == [list(plan.seats[1].gpus)]
    # What is not here is not given: no right, no port, no device, no directory of the host.
    assert {key: value for key, value in found["host_config"].items() if value} == {
        "AutoRemove": True,
        "Binds": [f"{name}:/home/student:rw"],
        "CapDrop": ["ALL"],
        "CpuPeriod": 100_000,
        "CpuQuota": 150_000,
        "Init": True,
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}},
        "Memory": 2 << 30,
        "MemorySwap": 2 << 30,  # no swap
        "NetworkMode": name,
        "PidsLimit": 4096,
        "ReadonlyRootfs": True,
        "SecurityOpt": ["no-new-privileges:true"],
        "Tmpfs": {"/tmp": ""},
    }
    assert (found["name"], found["user"]) == (name, "1000:1000")
    assert found["labels"] == {names.CLASS: "w", names.SEAT: "bob"}
    assert found["environment"]["LAB_CLUSTER_CONFIG"] == CLUSTER  # braces are no template
    unset = {"PATH", "HOME", "LAB_STATE", "CUDA_VISIBLE_DEVICES"}
    assert not unset & set(found["environment"])


def test_a_seat_without_gpus_and_limits() -> None:
    found = container_of(a_plan(cpus=None, memory=None), "ada")
    host, variables = found["host_config"], found["environment"]
    assert not {"CpuQuota", "Memory", "MemorySwap"} & set(host)
    assert not host.get("DeviceRequests")
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "void"  # also in an image with CUDA
    assert variables["CUDA_VISIBLE_DEVICES"] == "-1"


def test_a_seat_that_stops_slowly_delays_no_other() -> None:
    meeting = Barrier(AT_ONCE)  # each request waits for the others
    waiting = [SeatSpawner._executor.submit(meeting.wait, 10) for _ in range(AT_ONCE)]
    assert sorted(each.result() for each in waiting) == list(range(AT_ONCE))
    assert AT_ONCE > 1
