"""The queue as a service of JupyterHub: tokens, settings, placement, and the end of a class."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jupyterhub.services.auth
import pytest
from tornado.web import HTTPError
from traitlets.config import Config

from lab.backends.classroom.client import Queue
from lab.backends.classroom.protocol import Order, State
from lab.backends.compose.backend import ComposeBackend
from lab.backends.state import lock_environment, lock_path
from lab.classroom import hub, names
from lab.classroom.planning import ClassPlan, SeatPlan
from lab.classroom.queue import folder as folders
from lab.classroom.queue.admission import admitted, cluster_of, plan_of, project_names
from lab.classroom.queue.folder import (
    QueueDir,
    capacity_of,
    configure_queue,
    end_environments,
    queue_variables,
    remove_environments,
)
from lab.classroom.queue.handlers import TEACHER
from lab.classroom.queue.ledger import Entry
from lab.classroom.queue.service import backend_in, hub_seat, turns_of
from lab.config.model import PROJECT
from lab.errors import InputError, LabError
from lab.render.header import RenderOptions
from lab.task.protocol.files import write_atomically
from tests.golden.boxes import box, mig_of, uuid_of
from tests.support.classes import a_plan, created, stored
from tests.support.queueing import CONFIG

ACCESS = "access:services!service=queue"
QUEUE = {"queue": True}


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))


# ---- Tokens


class Hub:
    """JupyterHub's answers about tokens."""

    answers: Mapping[str, Any] = {}

    def __init__(self, **_: object) -> None:
        self.access_scopes = {"access:services", ACCESS}

    async def user_for_token(self, token: str, *, sync: bool) -> Mapping[str, Any] | None:
        assert not sync
        if token == "down":  # noqa: S105
            raise HTTPError(500, "Failed to connect to Hub API")
        return self.answers.get(token)

    def check_scopes(self, required: set[str], user: Mapping[str, Any]) -> set[str]:
        return jupyterhub.services.auth.check_scopes(required, set(user["scopes"]))


@pytest.fixture
def seat_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str | None]:
    def user(name: str, *scopes: str, kind: str = "user") -> dict[str, Any]:
        return {"name": name, "kind": kind, "scopes": scopes}

    Hub.answers = {
        "ada": user("ada", ACCESS),
        "ada without the scope": user("ada", "access:servers!server=ada/"),
        "ada of another service": user("ada", "access:services!service=grader"),
        "the teacher": user("lab", ACCESS, kind="service"),
        "a user lab": user("lab", ACCESS),
        "another service": user("ada", ACCESS, kind="service"),
        "a stranger": user("eve", ACCESS),
    }
    monkeypatch.setattr(jupyterhub.services.auth, "HubAuth", Hub)
    find = hub_seat({"ada", "bob"}, "lab")
    return lambda token: asyncio.run(find(token))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("token", "seat"),
    [
        ("ada", "ada"),
        ("ada without the scope", None),
        ("ada of another service", None),
        ("the teacher", TEACHER),
        ("a user lab", None),
        ("another service", None),
        ("a stranger", None),
        ("no token", None),
    ],
)
def test_only_the_token_of_a_seat_or_of_the_teacher_opens_the_queue(
    seat_of: Callable[[str], str | None], token: str, seat: str | None
) -> None:
    assert seat_of(token) == seat


def test_a_seat_repeats_its_request_while_jupyterhub_is_down(
    seat_of: Callable[[str], str | None],
) -> None:
    with pytest.raises(HTTPError) as caught:
        seat_of("down")
    assert caught.value.status_code == 503


# ---- JupyterHub's settings


def configured(plan: ClassPlan) -> Config:
    config, found = Config(), created(plan)
    hub.configure(config, found)
    return config


def test_jupyterhub_runs_the_service_and_gives_seats_access(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = {
        "LAB_IMAGE": "lab:mine",
        "DOCKER_HOST": "unix:///own/docker.sock",
        "HOME": "/own",  # it may have docker's plugins and contexts
        "XDG_RUNTIME_DIR": "/own/run",  # the socket of an engine without root
    }
    for name, value in needed.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UNRELATED", "x")
    config = configured(a_plan(gpus=QUEUE))
    teacher, queue = config.JupyterHub.services
    assert queue["name"] == "queue"
    assert queue["command"][1:] == ["-m", "lab.classroom.queue.service"]
    assert "url" not in queue  # the proxy has no route to it
    assert needed.items() <= queue["environment"].items()
    assert "UNRELATED" not in queue["environment"]
    roles = {role["name"]: role for role in config.JupyterHub.load_roles}
    assert roles["user"]["scopes"] == ["self", ACCESS]
    assert roles["queue-teacher"]["services"] == [teacher["name"]]
    assert ACCESS in config.DockerSpawner.server_token_scopes
    # A token in a seat gives no other right than by default.
    defaults = {"users:activity!user", "access:servers!server"}
    assert set(config.DockerSpawner.server_token_scopes) == {ACCESS, *defaults}


def test_a_class_without_a_queue_has_none() -> None:
    config = configured(a_plan(gpus=1))
    assert [each["name"] for each in config.JupyterHub.services] == ["lab"]
    assert "server_token_scopes" not in config.DockerSpawner
    assert queue_variables(a_plan(gpus=1)) == {}
    assert queue_variables(a_plan(gpus=1, cpu_runs=1)) == queue_variables(a_plan(gpus=QUEUE))
    cpus = configured(replace(a_plan(cpu_runs=1), name="other"))
    assert [each["name"] for each in cpus.JupyterHub.services] == ["lab", "queue"]
    assert queue_variables(a_plan(gpus=QUEUE)) == {"LAB_QUEUE_URL": "http://proxy:8083"}


def test_the_ports_of_the_relays_differ() -> None:
    apis = {names.RELAY_PORT + 1, names.QUEUE_RELAY_PORT + 1}
    ports = {names.PUBLIC_PORT, names.PROXY_API_PORT, names.RELAY_PORT, names.QUEUE_RELAY_PORT}
    assert len(apis | ports) == 6
    assert names.HUB_PORT != names.QUEUE_PORT


def test_what_the_queue_has_to_give() -> None:
    plan = a_plan(gpus=QUEUE)
    networks = tuple(IPv4Network(f"10.89.9.{at}/28") for at in range(0, 96, 16))
    found = capacity_of(replace(plan, run_networks=networks))
    assert found.gpus == plan.queue_gpus == tuple(map(uuid_of, range(4)))
    assert found.gpu_networks == tuple(map(str, networks[:4]))
    assert found.cpu_networks == tuple(map(str, networks[4:]))
    assert found.slice_s == 600.0


def test_runs_without_gpus_have_the_last_networks() -> None:
    found = capacity_of(a_plan(gpus=QUEUE, cpu_runs=2))
    assert (len(found.gpu_networks), len(found.cpu_networks)) == (4, 2)
    found = capacity_of(a_plan(gpus=2, cpu_runs=2))
    assert (found.gpus, found.gpu_networks, len(found.cpu_networks)) == ((), (), 2)


def test_the_service_boots_in_the_range_of_the_class_and_isolated() -> None:
    backend = backend_in("10.89.9.0/28")
    assert isinstance(backend, ComposeBackend)
    assert backend._options == RenderOptions(network="isolated", subnet="10.89.9.0/28")
    turns = turns_of(created(a_plan(gpus=QUEUE)), stored(a_plan(gpus=QUEUE)))
    assert turns.ledger.entries == ()


# ---- Placement


def order(config: str, **changes: object) -> Order:
    fields: dict[str, Any] = {
        "config": config,
        "with_gpus": True,
        "cluster_sha256": "0" * 64,
        "folder": "/home/student",
        "tensorflow": "2.21",
    }
    return Order(**{**fields, **changes})


def seat(**limits: Any) -> SeatPlan:
    found: dict[str, Any] = {"cpus": None, "memory_bytes": None, "disk_bytes": None, **limits}
    return SeatPlan("ada", (), IPv4Network("10.0.0.0/28"), **found)


def entry_with(*gpus: str, needs: int | None = None) -> Entry:
    return Entry(
        id="1",
        seat="ada",
        name="mnist",
        project="demo-ada-1",
        needs=len(gpus) if needs is None else needs,
        gpus=gpus,
        cluster_sha256="f" * 64,
        tensorflow="2.21",
    )


def test_indices_count_as_a_number_of_gpus() -> None:
    config = "box: {gpus: 8}\n" + CONFIG.format(name="mnist", gpus="[5, 7]")
    found = admitted(order(config), "demo", "ada", (), 0.0)
    assert found.needs == 2
    assert admitted(order(config, with_gpus=False), "demo", "ada", (), 0.0).needs == 0
    plan = plan_of(entry_with(uuid_of(2), uuid_of(0)), cluster_of(config), box(4), seat())
    assert sorted(plan.tasks[1].gpus) == [uuid_of(0), uuid_of(2)]
    assert (plan.name, plan.mode, plan.cluster_sha256) == ("demo-ada-1", "uuid", "f" * 64)


def test_mig_slices_are_placed_by_their_uuids() -> None:
    config = CONFIG.format(name="mnist", gpus=1)
    plan = plan_of(entry_with(mig_of(1)), cluster_of(config), box(1, slices=2), seat())
    assert plan.tasks[1].gpus == (mig_of(1),)


def test_a_gpu_that_the_driver_does_not_list_is_left_to_the_boot() -> None:
    config = CONFIG.format(name="mnist", gpus=1)
    plan = plan_of(entry_with("GPU-lost"), cluster_of(config), box(0), seat())
    assert plan.tasks[1].gpus == ("GPU-lost",)


def test_an_environment_without_gpus_gets_none() -> None:
    config = CONFIG.format(name="mnist", gpus=2)
    plan = plan_of(entry_with(), cluster_of(config), box(4), seat())
    assert {task.gpus for task in plan.tasks} == {()}


def test_the_limits_of_a_config_hold_if_they_are_smaller() -> None:
    config = CONFIG.format(name="mnist", gpus=0).replace("tf2: {}", "tf2: {cpus: 1, memory: 1GiB}")
    limits = {"cpus": 6.0, "memory_bytes": 6 << 30}
    plan = plan_of(entry_with(), cluster_of(config), box(0), seat(**limits))
    assert [(task.name, task.cpus, task.memory_bytes) for task in plan.tasks] == [
        ("ps-0", 0.5, 1 << 29),
        ("worker-0", 2.0, 2 << 30),
        ("worker-1", 0.5, 1 << 29),
    ]
    assert {task.cpuset for task in plan.tasks} == {None}


def test_too_little_memory_for_the_tasks_is_refused() -> None:
    config = CONFIG.format(name="mnist", gpus=0)
    with pytest.raises(InputError, match=r"the seat's memory gives each task 42.67 MiB"):
        plan_of(entry_with(), cluster_of(config), box(0), seat(memory_bytes=128 << 20))


def test_names_on_the_host_are_valid_and_differ() -> None:
    long = "a" * 31
    found = [
        next(project_names(name, one))
        for name in ("b" * 20, "c")
        for one in (long, long[:-1] + "b", "ada")
    ]
    assert len(set(found)) == len(found)
    assert all(re.fullmatch(PROJECT, each) for each in found)
    first = admitted(order(CONFIG.format(name="m", gpus=1)), "demo", "ada", (), 0.0)
    second = admitted(order(CONFIG.format(name="m", gpus=1)), "demo", "ada", {first.project}, 0.0)
    assert first.project != second.project
    assert first.id != second.id


# ---- The end


class Engine:
    """Environments that exist, by their names."""

    def __init__(self, *projects: str) -> None:
        self.name = "compose"
        self.projects = set(projects)

    def find_any(self, project: str) -> SimpleNamespace | None:
        if project not in self.projects:
            return None
        return SimpleNamespace(down=lambda _notify: self.projects.remove(project))


def test_the_end_of_a_class_removes_its_environments_and_their_locks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = created(a_plan(gpus=QUEUE))
    mine = next(project_names(folder.name, "ada"))
    engine = Engine(mine, "another-users")
    monkeypatch.setattr(folders, "ComposeBackend", lambda: engine)
    up = Entry(id="1", seat="ada", name="m", project=mine, needs=1, state=State.UP)
    waiting = Entry(id="2", seat="bob", name="m", project="another-users", needs=1)
    QueueDir(folder).ledger().write((up, waiting))
    with lock_environment("compose", mine):
        pass
    assert lock_path("compose", mine).exists()
    assert [each.id for each in QueueDir(folder).entries("ada")] == ["1"]
    assert remove_environments(folder) == 1
    assert engine.projects == {"another-users"}
    assert not lock_path("compose", mine).exists()


def test_a_class_whose_service_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = created(a_plan(gpus=QUEUE))
    monkeypatch.setattr(folders, "Queue", lambda url, token: Queue(url, token, patience_s=0.0))
    monkeypatch.setattr(names, "gateway", lambda _network: "127.0.0.1")
    monkeypatch.setattr(names, "QUEUE_PORT", 9)
    end_environments(folder, ["ada"], keep=False)  # it has none, so nothing is sent
    one = Entry(id="1", seat="ada", name="m", project="p", needs=1, state=State.UP)
    QueueDir(folder).ledger().write((one,))
    with pytest.raises(LabError, match="the queue of the class does not answer"):
        end_environments(folder, ["ada"], keep=False)


def test_the_environments_of_a_seat_are_gone_or_it_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = created(a_plan(gpus=QUEUE))
    ledger = QueueDir(folder).ledger()
    ended = Entry(id="1", seat="ada", name="m", project="p", needs=1, state=State.ENDED)
    other = Entry(id="2", seat="bob", name="m", project="q", needs=1, state=State.UP)
    ledger.write((ended, other))
    sent: list[str] = []

    class Service:
        def __init__(self, _url: str, token: str) -> None:
            assert token == folder.tokens().service

        def request(self, method: str, path: str) -> None:
            sent.append(f"{method} {path}")
            if len(sent) > 1:
                ledger.write((other,))

    monkeypatch.setattr(folders, "Queue", Service)
    monkeypatch.setattr(folders, "_END_S", 0.0)
    with pytest.raises(
        LabError, match="ada still has environments in the queue after 0 s; try again"
    ):
        end_environments(folder, ["ada"], keep=False)
    end_environments(folder, ["ada"], keep=True)  # it has no live one
    end_environments(folder, ["ada"], keep=False)
    assert sent == ["DELETE ?seat=ada&keep=0"] * 2
    with pytest.raises(LabError, match="bob still has environments in the queue after 0 s"):
        end_environments(folder, ["ada", "bob"], keep=True)
    assert sent[2:] == ["DELETE ?seat=bob&keep=1"]


def test_a_class_without_a_queue_has_nothing_to_end() -> None:
    end_environments(created(a_plan(gpus=1)), ["ada"], keep=False)


def test_a_damaged_ledger_is_an_error_of_one_line() -> None:
    folder = created(a_plan(gpus=QUEUE))
    write_atomically(QueueDir(folder).path / "ledger.json", "[3]")
    with pytest.raises(LabError, match=r"the ledger of the queue .* cannot be read"):
        QueueDir(folder).entries("ada")


def test_a_class_whose_ledger_is_damaged_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = created(a_plan(gpus=QUEUE))
    write_atomically(QueueDir(folder).path / "ledger.json", "[3]")
    first, second = islice(project_names(folder.name, "bob"), 2)
    engine = Engine(first, second, "another-users")
    monkeypatch.setattr(folders, "ComposeBackend", lambda: engine)
    assert remove_environments(folder) == 2
    assert engine.projects == {"another-users"}
    assert not lock_path("compose", first).exists()


def test_the_settings_are_for_a_class_with_a_queue_only() -> None:
    config = Config()
    configure_queue(config, stored(a_plan(gpus=1)), created(a_plan(gpus=1)), "lab")
    assert not config
    assert os.environ.get("LAB_CLASS") is None
