"""The queue as a service of JupyterHub: tokens, settings, placement, and the end of a class."""

from __future__ import annotations

import itertools
import json
import re
import time
from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ruamel.yaml import YAML

from lab.backends.compose.cli import Compose
from lab.backends.compose.render import DEFAULTS, Home, render
from lab.backends.engine.client import Engine
from lab.backends.state import lock_environment, lock_path
from lab.base.errors import InputError, LabError
from lab.cluster.config.cluster import PROJECT
from lab.cluster.config.load import parse_cluster, text_of
from lab.cluster.gpu import Inventory
from lab.cluster.placement.plan import Plan
from lab.protocol.volume.files import write_atomically
from lab.teach.classroom import protocol
from lab.teach.classroom.planning import SeatPlan
from lab.teach.classroom.protocol import Order, Queue, State
from lab.teach.classroom.queue import host as module
from lab.teach.classroom.queue import service
from lab.teach.classroom.queue.host import (
    TEACHER,
    Queued,
    SeatBoot,
    check_gpus,
    end_environments,
    home_of,
    ledger_file,
    queue_token,
    queue_variables,
    queued,
    read_ledger,
    remove_environments,
)
from lab.teach.classroom.queue.ledger import (
    MAX_CONFIG_CHARACTERS,
    Entry,
    admitted,
    cluster_of,
    plan_of,
    project_name,
)
from lab.teach.classroom.queue.service import open_ledger
from tests.golden.boxes import box, mig_of, uuid_of
from tests.support.classes import a_plan, created, own_state  # noqa: F401
from tests.support.fakes import FakeBackend, FakeEnvironment, raising
from tests.support.queueing import CONFIG

QUEUE = {"queue": True}


def test_a_seat_has_a_token_of_its_own() -> None:
    folder = created(a_plan(gpus=QUEUE))
    found = {name: queue_token(folder, name) for name in ("ada", "bob", TEACHER)}
    others = {folder.tokens().service, *folder.tokens().seats.values()}
    assert len(set(found.values()) - others) == 3
    assert queue_variables(folder, "ada") == {
        "LAB_QUEUE": f"http://proxy:8083 {found['ada']}",
    }


def test_a_class_without_a_queue_has_none() -> None:
    folder = created(replace(a_plan(gpus=1), name="no"))
    assert queue_variables(folder, "ada") == {}
    end_environments(folder, ["ada"])
    assert queue_variables(created(replace(a_plan(cpu_runs=1), name="cpus")), "ada")


def test_the_queue_has_the_gpus_and_networks_of_the_plan() -> None:
    plan = a_plan(gpus=QUEUE, cpu_runs=2)
    assert (len(plan.queue_gpus), len(plan.run_networks), plan.slice_s) == (4, 6, 600.0)
    assert read_ledger(created(plan)).plan == plan


def order(config: str, **changes: Any) -> Order:
    known = {"id": "0" * 16, "config": config, "with_gpus": True}
    paths = {"folder": "/home/student", "directory": "/home/student/x"}
    return Order(**{**known, **paths, "runtime": "tensorflow", **changes})


def config(gpus: object, **of_tf2: object) -> str:
    text = CONFIG.format(name="mnist", gpus=json.dumps(gpus))
    text = text.replace("tf2: {}", f"tf2: {json.dumps(of_tf2)}")
    return text_of(parse_cluster(f"box: {{gpus: 8}}\n{text}".encode(), "cluster.yaml"))


def seat(**limits: Any) -> SeatPlan:
    found: dict[str, Any] = {"cpus": None, "memory_bytes": None, "disk_bytes": None, **limits}
    return SeatPlan("ada", (), IPv4Network("10.0.0.0/28"), **found)


def entry(state: State = State.WAITING, text: str = "", **fields: Any) -> Entry:
    known = {"seat": "ada", "name": "mnist", "project": "demo-ada-1", "needs": 1}
    return Entry(**{**known, "order": order(text or config(1)), "state": state, **fields})


def planned(*gpus: str, text: str = "", host: Inventory, **limits: Any) -> Plan:
    return plan_of(entry(text=text, gpus=gpus, needs=len(gpus)), host, seat(**limits))


def test_indices_count_as_a_number_of_gpus() -> None:
    text = config([5, 7])
    found = admitted(order(text), "demo", "ada", 0.0)
    assert found.needs == 2
    assert admitted(order(text, with_gpus=False), "demo", "ada", 0.0).needs == 0
    plan = planned(uuid_of(2), uuid_of(0), text=text, host=box(4))
    assert sorted(plan.tasks[1].gpus) == [uuid_of(0), uuid_of(2)]
    assert (plan.name, plan.mode, plan.runtime) == ("demo-ada-1", "uuid", "tensorflow")


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


BASE = {"version": 1, "name": "m", "nodes": {"n": {}}, "jobs": {"worker": {"on": ["n"]}}}
NAMES = ["".join(each) for each in itertools.product("abcdefghij", repeat=3)]


@pytest.mark.parametrize(
    "part",
    [
        {"jobs": {"worker": {"on": ["n"] * 4000}}},
        {"jobs": {name: {"on": ["n"]} for name in NAMES[:800]}},
        {"nodes": {f"n{number}": {} for number in range(1500)}},
        {"nodes": {f"n{number}": {"gpus": ["x"] * 500} for number in range(6)}},
        {"nodes": {"n": {"memory": "9" * 16_000}}},
        {"faults": ["kill worker-0 after 500 steps"] * 450},
        {"faults": ["cut " + "1" * 16_000]},
        {"run": {"experiment": "async", "flags": dict.fromkeys(NAMES[:100], "x" * 140)}},
    ],
    ids=lambda part: next(iter(part)),
)
def test_the_slowest_config_is_read_in_less_than_a_second(part: dict[str, Any]) -> None:
    text = json.dumps({**BASE, **part}, separators=(",", ":"))
    assert 12_000 < len(text) < MAX_CONFIG_CHARACTERS
    began = time.thread_time()
    with suppress(InputError):
        cluster_of(text)
    assert time.thread_time() - began < 1.0


def test_names_on_the_host_are_valid_and_differ() -> None:
    long = "a" * 31
    seats = (long, long[:-1] + "b", "ada")
    found = {project_name(name, one) for name in ("b" * 20, "c") for one in seats}
    assert len(found) == 6
    assert all(re.fullmatch(PROJECT, each) for each in found)
    one = admitted(order(config(1)), "demo", "ada", 0.0)
    assert one.project == project_name("demo", "ada")


def home() -> Home:
    paths = {"folder": "/home/student", "directory": "/home/student/.local/state/lab/class/$m"}
    return home_of("w", entry(order=order("", **paths)))


def test_the_tasks_have_the_volume_of_their_seat_and_a_limit_of_their_log() -> None:
    plan = planned(uuid_of(0), host=box(4))
    text = render(plan, DEFAULTS, home=home())
    document = YAML(typ="safe").load(text)
    whole = {"type": "volume", "source": "home", "target": "/home/student"}
    assert document["volumes"] == {"home": {"name": "lab-class-w-ada", "external": True}}
    for node in plan.nodes:
        assert not document["services"][node.name].get("volumes")
    for task in plan.tasks:
        service = document["services"][task.name]
        # Nothing is mounted below the home directory, in which the student may put a link.
        assert service["volumes"][0] == {**whole, "volume": {"nocopy": True}}
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
    steps = SeatBoot(plan, tmp_path, Engine(), DEFAULTS, home())
    compose = Compose(plan.name, tmp_path / "x", tmp_path)
    steps.start_containers(compose)
    assert done == [("tf1", "tf2"), plan.name, ()]
    monkeypatch.setattr(module, "block_nodes", raising(LabError("the kernel refuses")))
    with pytest.raises(LabError, match="the kernel refuses"):
        steps.start_containers(compose)
    assert done[3:] == [("tf1", "tf2")]  # so a service that is killed meanwhile starts no task


def test_each_short_lived_container_has_a_limit_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Mock()
    monkeypatch.setattr(Engine, "client", lambda _: client)
    Engine().create("demo", "image", ["true"])
    limit = client.containers.create.call_args.kwargs["log_config"]
    assert limit == {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}}


@pytest.mark.parametrize("text", ['{"ada": {}}', "[[" * 40_000, "\0", '{"version": 2}'])
def test_a_damaged_ledger_is_an_error_and_an_empty_one_begins_without_containers(
    monkeypatch: pytest.MonkeyPatch, notices: list[str], text: str
) -> None:
    folder = created(a_plan(gpus=QUEUE))
    remove = Mock(side_effect=[LabError("the engine refuses"), None])
    monkeypatch.setattr(service, "remove_environments", remove)
    file = ledger_file(folder)
    write_atomically(file, text)
    for _ in range(2):
        with pytest.raises(LabError, match=r"cannot be read: .*; remove it: the queue then ends"):
            open_ledger(folder)
    assert queued(folder) is None  # `lab class status` goes on
    assert "cannot be read" in notices[-1]
    remove.assert_not_called()
    file.unlink()
    with pytest.raises(LabError, match="the engine refuses"):
        open_ledger(folder)
    assert open_ledger(folder).entries == {}
    remove.assert_called_with(folder, ["ada", "bob"])


def test_the_gpus_that_the_engine_gave_are_compared_without_a_program_in_a_container() -> None:
    def given(*gpus: str) -> Any:
        one = SimpleNamespace(service="worker-0", gpus=gpus, planned=("GPU-0", "GPU-1"))
        return [one, SimpleNamespace(gpus=None)]

    check_gpus(given("GPU-1", "GPU-0"))
    with pytest.raises(LabError, match=r"the engine gave worker-0 the GPUs \('GPU-1',\), not"):
        check_gpus(given("GPU-1"))


@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_end_of_a_class_removes_its_environments_and_their_locks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_damaged: bool
) -> None:
    folder = created(a_plan(gpus=QUEUE))
    mine = project_name(folder.name, "ada")
    left = [FakeEnvironment(tmp_path, project=each) for each in (mine, "another-users")]
    host = FakeBackend("compose", others=left)
    monkeypatch.setattr(module, "ComposeBackend", lambda: host)
    remove_environments(folder, ["ada"])
    assert [each.is_down for each in left] == [False, False], "its service never began"
    write_atomically(ledger_file(folder), "[3]" if is_damaged else "{}")
    with lock_environment("compose", mine):
        pass
    remove_environments(folder, ["ada"])
    assert [each.is_down for each in left] == [True, False]
    assert not lock_path("compose", mine).exists()


def test_the_environments_of_a_seat_are_gone_or_it_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = created(a_plan(gpus=QUEUE))
    sent: list[str] = []
    left = {"ada": 1, "bob": 100}

    def request(queue: Queue, kind: type[bool], method: str, query: str) -> bool:
        assert queue.token == queue_token(folder, TEACHER)
        sent.append(f"{method} {query}")
        left[query.removeprefix("?seat=")] -= 1
        return left[query.removeprefix("?seat=")] >= 0

    monkeypatch.setattr(Queue, "request", request)
    monkeypatch.setattr(protocol, "_PAUSE_S", 0.0)
    end_environments(folder, ["ada"])
    assert sent == ["DELETE ?seat=ada"] * 2
    monkeypatch.setattr(protocol, "_END_S", 0.0)
    with pytest.raises(LabError, match=r"has not ended the environment of bob after 0 s; try"):
        end_environments(folder, ["ada", "bob"])
    assert sent[2:] == ["DELETE ?seat=ada", "DELETE ?seat=bob"]


NOW = 1_000_000.0


def test_what_waits_and_what_holds_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    folder = created(a_plan(("ada", "bob", "cy", "dan"), gpus=QUEUE))
    assert queued(folder) == []
    gpus = tuple(map(uuid_of, range(4)))
    of_bob = {"seat": "bob", "name": "b", "needs": 4, "gpus": gpus, "network": "n"}
    waiting = entry(needs=2, since_unix=NOW - 60)
    up = entry(State.UP, since_unix=NOW - 230, **of_bob)
    ended = entry(State.ENDED, seat="cy", since_unix=NOW - 50)
    behind = entry(seat="dan", needs=3, since_unix=NOW)
    read_ledger(folder)._write({each.seat: each for each in (waiting, up, ended, behind)})
    assert queued(folder) == [
        Queued("bob", "up", None, 4, gpus, 230.0),
        Queued("ada", "waiting", 1, 2, (), 60.0),
        Queued("dan", "waiting", 2, 3, (), 0.0),
    ]
    assert queued(created(replace(a_plan(gpus=1), name="other"))) is None
