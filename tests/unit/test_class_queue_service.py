"""The queue as a service of JupyterHub: tokens, settings, placement, and the end of a class."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from jupyterhub.services.auth import HubAuth
from ruamel.yaml import YAML
from tornado.web import HTTPError
from traitlets.config import Config

from lab.backends.classroom.client import Queue
from lab.backends.classroom.protocol import Order, State
from lab.backends.compose.cli import Compose
from lab.backends.compose.render import DEFAULTS, render
from lab.backends.process import ProcessHandle
from lab.backends.state import lock_environment, lock_path
from lab.classroom import hub
from lab.classroom.planning import ClassPlan, SeatPlan
from lab.classroom.queue import folder as folders
from lab.classroom.queue import host as module
from lab.classroom.queue.admission import admitted, cluster_of, plan_of, project_name
from lab.classroom.queue.folder import (
    QueueDir,
    capacity_of,
    end_all,
    end_environments,
    queue_variables,
    remove_environments,
)
from lab.classroom.queue.handlers import TEACHER
from lab.classroom.queue.host import SeatCompose, has_program, home_of
from lab.classroom.queue.ledger import Entry
from lab.classroom.queue.overview import Queued, queued
from lab.classroom.queue.service import hub_seat
from lab.classroom.state import ClassDir
from lab.config.fields import PROJECT
from lab.config.load import parse_cluster, text_of
from lab.errors import InputError, LabError
from lab.gpu import Inventory
from lab.placement.plan import Plan
from lab.volume.files import write_atomically
from tests.golden.boxes import box, mig_of, uuid_of
from tests.support.classes import a_plan, created, own_state, stored  # noqa: F401
from tests.support.fakes import FakeBackend, FakeEnvironment
from tests.support.queueing import CONFIG

ACCESS = "access:services!service=queue"
QUEUE = {"queue": True}


# ---- Tokens


def user(name: str, *scopes: str, kind: str = "user") -> dict[str, Any]:
    return {"name": name, "kind": kind, "scopes": scopes}


TOKENS = {
    "ada": user("ada", ACCESS),
    "ada without the scope": user("ada", "access:servers!server=ada/"),
    "ada of another service": user("ada", "access:services!service=grader"),
    "the teacher": user("lab", ACCESS, kind="service"),
    "a user lab": user("lab", ACCESS),
    "another service": user("ada", ACCESS, kind="service"),
    "a stranger": user("eve", ACCESS),
    "no token": None,
}


def test_only_the_token_of_a_seat_or_of_the_teacher_opens_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = AsyncMock(side_effect=lambda token, *, sync: TOKENS[token])
    monkeypatch.setenv("JUPYTERHUB_SERVICE_NAME", "queue")
    monkeypatch.setattr(HubAuth, "user_for_token", answer)
    find: Any = hub_seat({"ada", "bob"}, "lab")
    seats = {token: asyncio.run(find(token)) for token in TOKENS}
    assert {token: seat for token, seat in seats.items() if seat} == {
        "ada": "ada", "the teacher": TEACHER,
    }  # fmt: skip
    answer.side_effect = HTTPError(500, "Failed to connect to Hub API")
    with pytest.raises(HTTPError) as caught:
        asyncio.run(find("ada"))
    assert caught.value.status_code == 503  # a seat repeats its request


# ---- JupyterHub's settings


def configured(plan: ClassPlan) -> Config:
    config, found = Config(), created(plan)
    hub.configure(config, found)
    return config


def test_jupyterhub_runs_the_service_and_gives_seats_access(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = {"DOCKER_HOST": "unix:///own/docker.sock", "XDG_RUNTIME_DIR": "/own/run"}
    for name, value in (needed | {"UNRELATED": "x"}).items():
        monkeypatch.setenv(name, value)
    config = configured(a_plan(gpus=QUEUE))
    teacher, queue = config.JupyterHub.services
    assert queue["name"] == "queue"
    assert "url" not in queue  # the proxy has no route to it
    assert needed.items() <= queue["environment"].items()
    assert "UNRELATED" not in queue["environment"]
    roles = {role["name"]: role for role in config.JupyterHub.load_roles}
    assert roles["user"]["scopes"] == ["self", ACCESS]
    assert roles["queue-teacher"]["services"] == [teacher["name"]]
    # A token in a seat gives no other right than by default.
    defaults = {"users:activity!user", "access:servers!server"}
    assert set(config.DockerSpawner.server_token_scopes) == {ACCESS, *defaults}


def test_a_class_without_a_queue_has_none() -> None:
    config = configured(a_plan(gpus=1))
    assert [each["name"] for each in config.JupyterHub.services] == ["lab"]
    assert "server_token_scopes" not in config.DockerSpawner
    assert queue_variables(a_plan(gpus=1)) == {}
    end_environments(created(replace(a_plan(gpus=1), name="no")), ["ada"])
    for plan in (a_plan(cpu_runs=1), a_plan(gpus=QUEUE)):
        assert queue_variables(plan) == {"LAB_QUEUE_URL": "http://proxy:8083"}


def test_the_queue_has_the_gpus_and_networks_of_the_plan() -> None:
    plan = a_plan(gpus=QUEUE, cpu_runs=2)
    found, networks = capacity_of(plan), tuple(map(str, plan.run_networks))
    assert (found.gpus, found.slice_s) == (plan.queue_gpus, 600.0)
    assert (found.gpu_networks, found.cpu_networks) == (networks[:4], networks[4:])


# ---- Placement


def order(config: str, **changes: Any) -> Order:
    known = {"id": "0" * 16, "config": config, "with_gpus": True, "cluster_sha256": "0" * 64}
    paths = {"folder": "/home/student", "directory": "/home/student/x"}
    return Order(**{**known, **paths, "tensorflow": "2.21", **changes})


def config(gpus: object, **of_tf2: object) -> str:
    """The config that a seat sends."""
    text = CONFIG.format(name="mnist", gpus=json.dumps(gpus))
    text = text.replace("tf2: {}", f"tf2: {json.dumps(of_tf2)}")
    return text_of(parse_cluster(f"box: {{gpus: 8}}\n{text}".encode(), "cluster.yaml"))


def seat(**limits: Any) -> SeatPlan:
    found: dict[str, Any] = {"cpus": None, "memory_bytes": None, "disk_bytes": None, **limits}
    return SeatPlan("ada", (), IPv4Network("10.0.0.0/28"), **found)


def entry(state: State = State.WAITING, **fields: Any) -> Entry:
    known = {"id": "1", "seat": "ada", "name": "mnist", "project": "demo-ada-1", "needs": 1}
    return Entry(**{**known, "state": state, **fields})


def planned(*gpus: str, text: str = "", host: Inventory, **limits: Any) -> Plan:
    one = entry(gpus=gpus, needs=len(gpus), cluster_sha256="f" * 64, tensorflow="2.21")
    return plan_of(one, cluster_of(text or config(1)), host, seat(**limits))


def test_indices_count_as_a_number_of_gpus() -> None:
    text = config([5, 7])
    found = admitted(order(text), "demo", "ada", 0.0)
    assert found.needs == 2
    assert admitted(order(text, with_gpus=False), "demo", "ada", 0.0).needs == 0
    plan = planned(uuid_of(2), uuid_of(0), text=text, host=box(4))
    assert sorted(plan.tasks[1].gpus) == [uuid_of(0), uuid_of(2)]
    assert (plan.name, plan.mode, plan.cluster_sha256) == ("demo-ada-1", "uuid", "f" * 64)


@pytest.mark.parametrize(
    ("gpus", "host"),
    [((mig_of(1),), box(1, slices=2)), (("GPU-lost",), box(0)), ((), box(4))],
    ids=["MIG", "lost", "none"],  # the boot reports a lost one
)
def test_a_task_has_only_the_gpus_of_its_entry(gpus: tuple[str, ...], host: Inventory) -> None:
    plan = planned(*gpus, host=host)
    assert [task.gpus for task in plan.tasks] == [(), gpus, ()]


def test_the_limits_of_a_config_hold_if_they_are_smaller() -> None:
    text = config(0, cpus=1, memory="1GiB")
    plan = planned(text=text, host=box(0), cpus=6.0, memory_bytes=6 << 30)
    assert [(task.name, task.cpus, task.memory_bytes, task.cpuset) for task in plan.tasks] == [
        ("ps-0", 0.5, 1 << 29, None),
        ("worker-0", 2.0, 2 << 30, None),
        ("worker-1", 0.5, 1 << 29, None),
    ]
    with pytest.raises(InputError, match=r"the seat's memory gives each task 42.67 MiB"):
        planned(text=text, host=box(0), memory_bytes=128 << 20)


def test_names_on_the_host_are_valid_and_differ() -> None:
    long = "a" * 31
    seats = (long, long[:-1] + "b", "ada")
    found = {project_name(name, one) for name in ("b" * 20, "c") for one in seats}
    assert len(found) == 6
    assert all(re.fullmatch(PROJECT, each) for each in found)
    one = admitted(order(config(1)), "demo", "ada", 0.0)
    assert one.project == project_name("demo", "ada")


# ---- Containers

ENTRY = {"folder": "/home/student", "directory": "/home/student/.local/state/lab/class/$m"}


def test_the_tasks_have_the_volume_of_their_seat_and_a_limit_of_their_log() -> None:
    plan = planned(uuid_of(0), host=box(4))
    text = render(plan, DEFAULTS, home=home_of("w", entry(**ENTRY)))
    document = YAML(typ="safe").load(text)
    home = {"type": "volume", "source": "home", "target": "/home/student"}
    assert document["volumes"] == {"home": {"name": "lab-class-w-ada", "external": True}}
    for node in plan.nodes:
        assert not document["services"][node.name].get("volumes")
    for task in plan.tasks:
        service = document["services"][task.name]
        # Nothing is mounted below the home directory, in which the student may put a link.
        assert service["volumes"][0] == {**home, "volume": {"nocopy": True}}
        assert [each["target"] for each in service["volumes"][1:]] == ["/lab/data"]
        variables = service["environment"]
        assert variables["LAB_RUNS"] == "/home/student/.local/state/lab/class/$$m/runs"
        assert variables["LAB_OUTPUT"] == "/home/student/.local/state/lab/class/$$m/output"
        assert variables["LAB_SCRIPTS"] == "/home/student/scripts"
    for service in document["services"].values():
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "1"}


def test_the_host_is_blocked_before_a_task_starts_or_the_boot_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan, done = planned(host=box(0)), []
    monkeypatch.setattr(Compose, "up", lambda _, *names: done.append(names))
    monkeypatch.setattr(module, "block_nodes", lambda _, project: done.append(project))
    steps = SeatCompose(home_of("w", entry(**ENTRY))).boot(plan, root=tmp_path)
    compose = Compose(plan.name, tmp_path / "x", tmp_path)
    steps.start_containers(compose)
    assert done == [("tf1", "tf2"), plan.name, ()]

    def refuse(*_: object) -> None:
        raise LabError("the kernel refuses")

    monkeypatch.setattr(module, "block_nodes", refuse)
    with pytest.raises(LabError, match="the kernel refuses"):
        steps.start_containers(compose)
    assert done[3:] == [("tf1", "tf2")]


@pytest.mark.parametrize(
    ("processes", "is_used"),
    [
        ([("10", "1"), ("11", "10")], False),  # the first process and the agent
        ([("10", "1"), ("11", "10"), ("20", "1"), ("21", "20")], False),  # and a health check
        ([("10", "1"), ("11", "10"), ("12", "11")], True),
        ([("10", "1"), ("12", "11"), ("11", "10"), ("13", "12")], True),
        ([], False),
    ],
)
def test_a_program_is_a_process_below_the_agent(
    processes: list[tuple[str, str]], *, is_used: bool
) -> None:
    rows = [["user", pid, ppid, "python"] for pid, ppid in processes]
    assert has_program(["UID", "PID", "PPID", "CMD"], rows) is is_used


# ---- The end


@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_end_of_a_class_removes_its_environments_and_their_locks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_damaged: bool
) -> None:
    folder = created(a_plan(gpus=QUEUE))
    mine = project_name(folder.name, "ada")
    left = [FakeEnvironment(tmp_path, project=each) for each in (mine, "another-users")]
    host = FakeBackend("compose", others=left)
    monkeypatch.setattr(folders, "ComposeBackend", lambda: host)
    assert remove_environments(folder) == 0  # its service never began
    write_atomically(QueueDir(folder).path / "ledger.json", "[3]" if is_damaged else "[]")
    with lock_environment("compose", mine):
        pass
    assert remove_environments(folder) == 1
    assert [each.is_down for each in left] == [True, False]
    assert not lock_path("compose", mine).exists()


def test_the_environments_of_a_seat_are_gone_or_it_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = created(a_plan(gpus=QUEUE))
    ledger = QueueDir(folder).ledger()
    up, other = entry(State.UP), entry(State.UP, seat="bob")
    ledger.write((up, other))
    sent: list[str] = []

    def request(queue: Queue, method: str, path: str) -> None:
        assert queue.token == folder.tokens().service
        sent.append(f"{method} {path}")
        if len(sent) > 1:
            ledger.write((entry(State.ENDED), other))

    monkeypatch.setattr(Queue, "request", request)
    monkeypatch.setattr(folders, "_END_S", 0.0)
    with pytest.raises(LabError, match=r"ada still has containers .* after 0 s; try again"):
        end_environments(folder, ["ada"])
    end_environments(folder, ["ada"])
    end_environments(folder, ["ada"])  # it has no live one
    assert sent == ["DELETE /environments?seat=ada"] * 2
    with pytest.raises(LabError, match="bob still has containers in the queue after 0 s"):
        end_environments(folder, ["ada", "bob"])
    assert sent[2:] == ["DELETE /environments?seat=bob"]


def test_all_end_by_the_service_or_without_it(
    monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    folder, done = created(a_plan(gpus=QUEUE)), []
    error: list[LabError] = []

    def ends(_: ClassDir, seats: list[str]) -> None:
        done.append(" ".join(seats))
        if error:
            raise error[0]

    monkeypatch.setattr(folders, "end_environments", ends)
    monkeypatch.setattr(folders, "remove_environments", lambda _: done.append("removed"))
    end_all(folder)  # JupyterHub has ended
    folder.write_hub(ProcessHandle.of(os.getpid()))
    end_all(folder)
    error.append(LabError("no answer", "try again"))
    end_all(folder)
    assert done == ["removed", "ada bob", "ada bob", "removed"]
    assert notices == ["warning: no answer; try again"]


# ---- The overview

NOW = 1_000_000.0


def test_what_waits_and_what_holds_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    folder = created(a_plan(("ada", "bob", "cy", "dan"), gpus=QUEUE))
    assert queued(folder) == []
    gpus = tuple(map(uuid_of, range(4)))
    of_bob = {"seat": "bob", "name": "b", "needs": 4, "gpus": gpus, "network": "n"}
    QueueDir(folder).ledger().write(
        (
            entry(needs=2, requested_unix=NOW - 60),
            entry(
                State.UP,
                requested_unix=NOW - 900,
                up_unix=NOW - 200,
                granted_unix=NOW - 230,
                **of_bob,
            ),
            entry(State.ENDED, seat="cy", granted_unix=NOW - 50),
            entry(seat="dan", needs=3, requested_unix=NOW),
        )
    )
    assert queued(folder) == [
        Queued("bob", "b", "up", None, 4, gpus, 230.0, None),
        Queued("ada", "mnist", "waiting", 1, 2, (), 60.0, 600.0 - 200),
        Queued("dan", "mnist", "waiting", 2, 3, (), 0.0, 2 * 600.0 - 200),
    ]
    assert queued(created(replace(a_plan(gpus=1), name="other"))) is None
