"""Seats and their queue, over real HTTP; the containers are fake."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.backends import Chunk, Environment
from lab.backends.classroom import ClassBackend, ClassEnvironment, client
from lab.backends.classroom.backend import _wait
from lab.backends.classroom.protocol import MAX_CONFIG_CHARACTERS, TOKEN, URL, State, Status
from lab.backends.state import Busy
from lab.classroom.queue import handlers, turns
from lab.classroom.queue.ledger import Ledger
from lab.errors import ConfigError, InputError, LabError
from lab.placement.plan import Plan
from lab.run.discovery import statuses_of
from lab.task.protocol import Request, RunSpec
from lab.task.protocol.framing import encode_frame
from lab.task.protocol.states import State as RunState
from lab.threads import in_background
from tests.support.agents import wait_for
from tests.support.queueing import (
    GPUS,
    SLICE_S,
    Clock,
    Containers,
    Host,
    QueueUnderTest,
    a_queue,
    fails,
    plan_in_seat,
    until_cancelled,
)

RUN = "20261124-0600-async-8602"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "volumes")


@pytest.fixture
def queue(tmp_path: Path, host: Host) -> Iterator[QueueUnderTest]:
    with a_queue(tmp_path / "queue", host) as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_TICK_S", 0.02)
    monkeypatch.setattr(turns, "_POLL_S", 0.02)
    monkeypatch.setattr("lab.backends.classroom.environment._POLL_S", 0.02)
    monkeypatch.setattr("lab.backends.classroom.backend._PATIENCE_S", 0.0)


def up(
    backend: ClassBackend, plan: Plan, root: Path, notify: Callable[[str], None] = lambda _: None
) -> ClassEnvironment:
    return backend.up(plan, root=root, notify=notify)


def in_thread(backend: ClassBackend, plan: Plan, root: Path) -> tuple[Future[object], list[str]]:
    lines: list[str] = []
    return in_background(lambda: up(backend, plan, root, lines.append)), lines


def request(environment: ClassEnvironment, run_id: str = RUN) -> Request:
    return Request(run_id, RunSpec("async"), environment.cluster_spec())


def collected(environment: ClassEnvironment, **options: bool) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for chunk in environment.stream(RUN, {}, **{"follow": True, **options}):
        if chunk is not None:
            files[chunk.path] = files.get(chunk.path, b"") + chunk.data
    return files


def test_a_run_from_the_queue_to_its_records(
    queue: QueueUnderTest, host: Host, root: Path, tmp_path: Path
) -> None:
    lines: list[str] = []
    environment = up(queue.seat("ada"), plan_in_seat(2), root, lines.append)
    project = queue.entry("ada").project
    assert project.startswith("demo-ada-")
    assert host.booted == [(project, GPUS[:2])]
    assert host.networks == {project: "a"}
    assert lines[0] == "the turn has begun; if others wait, it ends 10 min after the first step"
    assert lines[1] == f"booting {project}"
    assert environment.project == "mnist"
    assert environment.folder == str(root)
    assert environment.cluster_sha256 == plan_in_seat(2).cluster_sha256
    assert [(task.task, task.gpus) for task in environment.tasks()] == [
        ("ps-0", ()),
        ("worker-0", GPUS[:2]),
        ("worker-1", ()),
    ]
    parts = tmp_path / "program"
    (parts / "below").mkdir(parents=True)
    (parts / "below" / "big.py").write_bytes(b"x" * (3 << 20))
    (parts / "empty.py").write_bytes(b"")
    environment.submit(request(environment), {"program": parts})
    files = collected(environment)
    assert files["program/below/big.py"] == b"x" * (3 << 20)
    assert files["program/empty.py"] == b""
    assert b'"kind": "final"' in files["tasks/worker-0.jsonl"]
    assert [each.run_id for each in environment.runs()] == [RUN]
    environment.mark_collected(RUN, "/home/student/runs")
    assert environment.collected() == {RUN: "/home/student/runs"}
    assert environment.provenance() == {"interpreter": "fake"}
    assert environment.boot_file() == ("processes.json", "{}\n")
    assert list(environment.logs(["ps-0"], follow=False, tail=None)) == ["ps-0  | \\x1b[31mred"]
    environment.down(lambda _line: None)
    assert host.environments[project].is_down
    assert queue.state("ada") is None
    assert [path.name for path in (tmp_path / "queue").iterdir()] == ["ledger.json"]


def test_a_check_that_fails_gives_the_gpus_back(queue: QueueUnderTest, root: Path) -> None:
    seen: list[str] = []

    def check(environment: Environment) -> None:
        seen.extend(task.task for task in environment.tasks())
        raise LabError("wrong GPUs")

    with pytest.raises(LabError, match="wrong GPUs"):
        queue.seat("ada").up(plan_in_seat(4), root=root, notify=lambda _: None, check=check)
    assert seen == ["ps-0", "worker-0", "worker-1"]
    queue.wait("ada", None)


def test_limits_of_the_seat_hold_for_all_tasks_together(
    queue: QueueUnderTest, host: Host, root: Path
) -> None:
    up(queue.seat("ada"), plan_in_seat(0), root)
    (plan,) = host.plans.values()
    assert [(task.cpus, task.memory_bytes, task.cpuset) for task in plan.tasks] == [
        (2.0, 2 << 30, None)
    ] * 3


def test_a_seat_waits_sees_its_place_and_gets_its_turn(
    queue: QueueUnderTest, host: Host, root: Path
) -> None:
    first = up(queue.seat("ada"), plan_in_seat(4), root)
    second, lines = in_thread(queue.seat("bob"), plan_in_seat(4), root)
    wait_for(lambda: lines, "bob has no place")
    assert lines[0] == "position 1 in the queue, about 12 min"
    waiting = queue.seat("bob").find_any("mnist")
    assert waiting is not None
    assert not waiting.is_up
    assert (waiting.tasks(), waiting.runs(), waiting.cluster_spec()) == ([], [], {})
    assert queue.seat("bob").find("mnist") is None
    with pytest.raises(InputError, match="is waiting"):
        waiting.submit(request(first))
    with pytest.raises(InputError, match="'mnist' waits for its turn"):
        waiting.cancel(RUN, "enough")
    first.down(lambda _line: None)
    second.result(60)
    assert [gpus for _, gpus in host.booted] == [GPUS, GPUS]


def test_an_interrupt_gives_the_place_back(queue: QueueUnderTest, root: Path) -> None:
    up(queue.seat("ada"), plan_in_seat(4), root)
    lines: list[str] = []

    def notify(line: str) -> None:
        lines.append(line)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        up(queue.seat("bob"), plan_in_seat(4), root, notify)
    assert lines == ["position 1 in the queue, about 12 min"]
    assert queue.state("bob") is None


def test_a_seat_that_no_longer_asks_loses_its_place(
    queue: QueueUnderTest, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up(queue.seat("ada"), plan_in_seat(4), root)
    order = {
        "config": plan_in_seat(4).config,
        "with_gpus": True,
        "cluster_sha256": "0" * 64,
        "folder": "/",
        "tensorflow": "2.21",
    }
    client.Queue(queue.url, "token-of-bob").request("POST", "", order)
    assert queue.state("bob") is State.WAITING
    monkeypatch.setattr(turns, "NO_FOLLOW_S", 0.0)
    queue.wait("bob", None)
    assert queue.state("ada") is State.UP


def test_a_seat_has_one_place(queue: QueueUnderTest, root: Path) -> None:
    up(queue.seat("ada"), plan_in_seat(1), root)
    with pytest.raises(InputError, match="has the environment 'mnist' in the queue already"):
        up(queue.seat("ada"), plan_in_seat(1, "other"), root)


def test_the_turn_ends_when_others_wait(
    tmp_path: Path, host: Host, root: Path, clock: Clock
) -> None:
    host.tasks_do = until_cancelled
    with a_queue(tmp_path / "queue", host, clock) as queue:
        first = up(queue.seat("ada"), plan_in_seat(4), root)
        first.submit(request(first))
        clock.now += 2 * SLICE_S
        second, _ = in_thread(queue.seat("bob"), plan_in_seat(2), root)
        second.result(60)
        # The run was cancelled with its volume kept, so the seat still collects it.
        assert queue.entry("ada").state is State.ENDED
        assert queue.entry("ada").gpus == ()
        cancel = host.environments[queue.entry("ada").project].volume.cancel(RUN)
        reason = json.loads(cancel.read_text())["reason"]
        assert reason == "its turn of 10 min has ended; start it again"
        left = queue.seat("ada").find_any("mnist")
        assert left is not None
        assert not left.is_up
        assert {each.state for each in statuses_of(left, RUN).values()} == {RunState.CANCELLED}
        assert b'"kind": "start"' in collected(left)["tasks/worker-0.jsonl"]
        left.down(lambda _line: None)
        assert queue.state("ada") is None


@pytest.mark.parametrize(
    ("spec", "step", "resumes"),
    [
        (RunSpec("async"), 40, True),
        (RunSpec("async"), None, False),  # it has no checkpoint
        (RunSpec("async", resumed_from=RUN.replace("8602", "0000")), None, True),
        (RunSpec("own.py", own=True), 40, False),
        (RunSpec("async-fast"), 40, False),  # it saves none
    ],
)
def test_the_end_of_a_turn_recommends_a_resume_only_if_it_is_possible(
    queue: QueueUnderTest, host: Host, root: Path, spec: RunSpec, step: int | None, *, resumes: bool
) -> None:
    host.tasks_do = lambda volume, request: until_cancelled(volume, request, step)
    ada = up(queue.seat("ada"), plan_in_seat(1), root)
    ada.submit(Request(RUN, spec, ada.cluster_spec()))
    (one,) = host.environments.values()
    wait_for(one.volume.status(RUN, "worker-0").exists, "no task starts")
    ada.give_back(keep=True)
    queue.wait("ada", State.ENDED)
    reason = json.loads(one.volume.cancel(RUN).read_text())["reason"]
    hint = f"continue with --resume {RUN}" if resumes else "start it again"
    assert reason == f"its seat removed it; {hint}"


def test_the_service_notes_the_first_step(
    tmp_path: Path, host: Host, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_CHECK_S", 0.02)
    host.tasks_do = lambda volume, request: until_cancelled(volume, request, 1)
    with a_queue(tmp_path / "queue", host, clock) as queue:
        ada = up(queue.seat("ada"), plan_in_seat(1), root)
        assert queue.entry("ada").stepped_unix == 0.0
        clock.now += 70.0
        ada.submit(request(ada))
        wait_for(lambda: queue.entry("ada").stepped_unix, "no step is noted")
        assert queue.entry("ada").stepped_unix == clock.now == queue.entry("ada").granted_unix + 70
        ada.cancel(RUN, "enough")


def test_the_kept_volume_is_removed_after_a_while(
    tmp_path: Path, host: Host, root: Path, clock: Clock
) -> None:
    with a_queue(tmp_path / "queue", host, clock) as queue:
        up(queue.seat("ada"), plan_in_seat(1), root).down(lambda _line: None, keeps=lambda: True)
        assert queue.state("ada") is State.ENDED
        assert host.environments[queue.entry("ada").project].volume_stays
        clock.now += turns.KEEP_S + 1
        queue.wait("ada", None)


def test_a_volume_stays_until_its_run_is_collected(
    tmp_path: Path, host: Host, root: Path, clock: Clock
) -> None:
    with a_queue(tmp_path / "queue", host, clock) as queue:
        ada, seat = up(queue.seat("ada"), plan_in_seat(1), root), queue.seat("ada")
        ada.submit(request(ada))
        assert collected(ada)
        ada.down(lambda _line: None, keeps=lambda: True)
        clock.now += 10 * turns.KEEP_S
        with pytest.raises(InputError, match="'mnist' that this seat has not collected"):
            up(seat, plan_in_seat(1), root)
        left = seat.find_any("mnist")
        assert left is not None
        assert collected(left)
        left.mark_collected(RUN, "/home/student/runs")
        queue.wait("ada", None)
        up(seat, plan_in_seat(1), root)


@pytest.mark.parametrize("read", [False, True])
def test_a_seat_reaches_its_runs_while_the_containers_are_removed(
    queue: QueueUnderTest, root: Path, monkeypatch: pytest.MonkeyPatch, *, read: bool
) -> None:
    begun, go_on, down = threading.Event(), threading.Event(), Containers.down

    def slow(one: Containers, *given: Any, **more: Any) -> None:
        begun.set()
        assert go_on.wait(60)
        down(one, *given, **more)
        begun.clear()

    def broken(call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(one: Containers, *given: Any) -> Any:
            if begun.is_set():
                raise LabError("the container stopped during the call")
            return call(one, *given)

        return checked

    ada = up(queue.seat("ada"), plan_in_seat(1), root)
    ada.submit(request(ada))
    assert collected(ada)
    monkeypatch.setattr(Containers, "down", slow)
    for name in ("post", "runs"):
        monkeypatch.setattr(Containers, name, broken(getattr(Containers, name)))
    ada.give_back(keep=True)
    assert begun.wait(60)
    call = ada.runs if read else partial(ada.mark_collected, RUN, "/home/student/runs")
    future = in_background(call)
    wait_for(lambda: queue.turns.streams(ada.status.id) or future.done(), "the call is not made")
    go_on.set()
    future.result(60)
    queue.wait("ada", State.ENDED)
    wait_for(lambda: queue.entry("ada").collected is not read, "the note of the seat is lost")


def test_an_idle_environment_ends_and_a_training_one_goes_on(
    queue: QueueUnderTest, host: Host, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.tasks_do = until_cancelled
    training = up(queue.seat("ada"), plan_in_seat(1), root)
    training.submit(request(training))
    up(queue.seat("bob"), plan_in_seat(1), root)
    monkeypatch.setattr(turns, "_CHECK_S", 0.02)
    monkeypatch.setattr(turns, "IDLE_S", 0.02)
    queue.wait("bob", State.ENDED)
    assert queue.entry("bob").reason == "it was idle for 0 s"
    assert queue.state("ada") is State.UP
    training.cancel(RUN, "enough")
    queue.wait("ada", State.ENDED)


def test_containers_that_ended_end_the_turn(
    queue: QueueUnderTest, host: Host, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up(queue.seat("ada"), plan_in_seat(1), root)
    monkeypatch.setattr(turns, "_CHECK_S", 0.02)
    one = host.environments[queue.entry("ada").project]
    one.volume_stays = one.is_down = True
    queue.wait("ada", State.ENDED)
    assert "the host may have been restarted" in queue.entry("ada").reason


def test_a_boot_that_fails_frees_the_gpus(queue: QueueUnderTest, host: Host, root: Path) -> None:
    host.boots = fails("worker-0 is unhealthy")
    with pytest.raises(LabError, match="worker-0 is unhealthy; fix it"):
        up(queue.seat("ada"), plan_in_seat(4), root)
    queue.wait("ada", None)
    host.boots = lambda _project: None
    up(queue.seat("bob"), plan_in_seat(4), root)


def test_a_place_that_is_given_back_during_the_boot(
    queue: QueueUnderTest, host: Host, root: Path
) -> None:
    booting, go_on = threading.Event(), threading.Event()

    def boot(_project: str) -> None:
        booting.set()
        assert go_on.wait(60)

    host.boots = boot
    future, _ = in_thread(queue.seat("ada"), plan_in_seat(4), root)
    assert booting.wait(60)
    found = queue.seat("ada").find_any("mnist")
    assert found is not None
    found.give_back(keep=False)
    assert queue.entry("ada").gpus == GPUS  # until the containers are gone
    go_on.set()
    with pytest.raises(LabError, match="its seat removed it"):
        future.result(60)
    queue.wait("ada", None)
    (one,) = host.environments.values()
    assert one.is_down


@pytest.mark.parametrize("state", [State.GRANTED, State.UP, State.ENDING, State.ENDED])
def test_a_killed_service_goes_on(
    tmp_path: Path, host: Host, root: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "queue"
    with a_queue(folder, host) as queue:
        environment = up(queue.seat("ada"), plan_in_seat(3), root)
        entry = queue.entry("ada")
        assert environment.is_up
    # The ledger as a service leaves it that was killed in this state.
    gpus = {"gpus": (), "network": ""} if state is State.ENDED else {}
    Ledger(folder / "ledger.json").write((msgspec.structs.replace(entry, state=state, **gpus),))
    if state is State.ENDED:
        host.environments[entry.project].is_down = True
        host.environments[entry.project].volume_stays = True
    monkeypatch.setattr(turns, "_CHECK_S", 0.02)
    with a_queue(folder, host) as queue:
        after = State.UP if state in {State.GRANTED, State.UP} else State.ENDED
        queue.wait("ada", after)
        if after is State.UP:
            assert queue.entry("ada").gpus == GPUS[:3]
            found = queue.seat("ada").find("mnist")
            assert found is not None
            found.submit(request(found))
            assert collected(found)
        later, lines = in_thread(queue.seat("bob"), plan_in_seat(4), root)
        if after is State.UP:
            wait_for(lambda: lines, "bob got GPUs that ada has")
            queue.seat("ada").find_any("mnist").down(lambda _line: None)  # type: ignore[union-attr]
        later.result(60)
    assert len(host.booted) == (3 if state is State.GRANTED else 2)


def test_a_seat_sees_only_its_own(queue: QueueUnderTest, root: Path) -> None:
    environment = up(queue.seat("ada"), plan_in_seat(1), root)
    assert queue.seat("ada").projects() == ["mnist"]
    assert queue.seat("bob").projects() == []
    other = ClassEnvironment(client.Queue(queue.url, "token-of-bob"), environment.status)
    for attack in (
        other.tasks,
        other.runs,
        other.collected,
        other.refreshed,
        lambda: other.give_back(keep=False),
        lambda: other.submit(request(environment)),
        lambda: other.cancel(RUN, "attack"),
        lambda: list(other.stream(RUN, {}, follow=False)),
        lambda: list(other.logs([], follow=False, tail=None)),
        lambda: other.inject_network_fault("tf1", ["cut:5s"]),
    ):
        with pytest.raises(LabError, match="the queue has no environment"):
            attack()
    assert queue.state("ada") is State.UP


def test_only_the_teacher_ends_the_environments_of_a_seat(
    queue: QueueUnderTest, root: Path
) -> None:
    up(queue.seat("ada"), plan_in_seat(1), root)
    assert status_of(queue, "DELETE", "/environments?seat=ada", "token-of-bob") == 403
    assert status_of(queue, "DELETE", "/environments?seat=ada", "token-of-ada") == 403
    assert queue.state("ada") is State.UP
    assert status_of(queue, "DELETE", "/environments?seat=ada", "token-of-teacher") == 200
    queue.wait("ada", None)
    with pytest.raises(LabError, match="the teacher has no seat"):
        up(queue.seat("teacher"), plan_in_seat(1), root)


def test_the_teacher_ends_runs_and_keeps_their_volumes(
    queue: QueueUnderTest, host: Host, root: Path
) -> None:
    host.tasks_do = until_cancelled
    one = up(queue.seat("ada"), plan_in_seat(4), root)
    one.submit(request(one))
    future, lines = in_thread(queue.seat("bob"), plan_in_seat(4), root)
    wait_for(lambda: lines, "bob has no place")
    for seat in ("bob", "ada"):
        address = f"/environments?seat={seat}&keep=1"
        assert status_of(queue, "DELETE", address, "token-of-teacher") == 200
    queue.wait("ada", State.ENDED)
    assert queue.entry("ada").reason == "the teacher ended it"
    volume = host.environments[queue.entry("ada").project]
    assert volume.volume_stays
    assert b"the teacher ended it" in volume.volume.cancel(RUN).read_bytes()
    with pytest.raises(LabError, match="the queue has no environment"):
        future.result(60)
    assert queue.state("bob") is None
    # The seat, too, can still collect it.
    assert collected(queue.seat("ada").find_any("mnist"))  # type: ignore[arg-type]


@pytest.mark.parametrize("token", ["", "token-of-eve", "token-of-ada-", "token-of-*"])
def test_a_token_without_access_is_refused(queue: QueueUnderTest, token: str) -> None:
    for method, path in (("GET", "/environments"), ("POST", "/environments"), ("GET", "/no")):
        assert status_of(queue, method, path, token) == 403


def test_no_such_address(queue: QueueUnderTest) -> None:
    assert status_of(queue, "GET", "/environments/../../etc/passwd", "token-of-ada") == 404


def status_of(queue: QueueUnderTest, method: str, path: str, token: str) -> int:
    """The HTTP status of a request without a body."""
    connection = http.client.HTTPConnection(queue.url.removeprefix("http://"), timeout=60)
    headers = {"Authorization": f"token {token}"} if token else {}
    connection.request(method, path, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"config": "x" * (MAX_CONFIG_CHARACTERS + 1)}, InputError, "more than 65,536 characters"),
        ({"tensorflow": "9"}, InputError, "no TensorFlow version '9'"),
        ({"cluster_sha256": "../x"}, InputError, "cluster_sha256 is no digest"),
        ({"config": 3}, InputError, "not a message of the queue"),
        ({"config": plan_in_seat(5).config}, InputError, "needs 5 GPUs, and the queue has 4"),
        (
            {
                "config": plan_in_seat(1).config.replace(
                    '"gpus": 1', '"gpus": ["GPU-11111111-1111-1111-1111-111111111111"]'
                )
            },
            InputError,
            r"nodes.tf1.gpus names a GPU by its UUID",
        ),
        (
            {"config": plan_in_seat(0).config.replace('["tf1", "tf2"]', f"{['tf1'] * 33}")},
            InputError,
            "has 34 tasks, and the queue allows 32",
        ),
    ],
)
def test_bad_orders_are_refused_with_one_line(
    queue: QueueUnderTest, change: dict[str, object], error: type[LabError], match: str
) -> None:
    order = {
        "config": plan_in_seat(1).config,
        "with_gpus": True,
        "cluster_sha256": "0" * 64,
        "folder": "/",
        "tensorflow": "2.21",
    }
    if isinstance(config := change.get("config"), str):
        change["config"] = config.replace("'", '"')
    with pytest.raises(error, match=match):
        client.Queue(queue.url, "token-of-ada").request("POST", "", {**order, **change})
    assert queue.turns.ledger.entries == ()


def test_every_node_has_an_address(queue: QueueUnderTest) -> None:
    nodes = "".join(f"  tf{n}: {{}}\n" for n in range(14))
    config = f"version: 1\nname: m\nnodes:\n{nodes}jobs:\n  worker: {{on: [tf0]}}\n"
    order = {
        "config": config,
        "with_gpus": False,
        "cluster_sha256": "0" * 64,
        "folder": "/",
        "tensorflow": "2.21",
    }
    with pytest.raises(InputError, match="has 14 nodes, and the queue allows 13"):
        client.Queue(queue.url, "token-of-ada").request("POST", "", order)


@pytest.fixture
def environment(queue: QueueUnderTest, root: Path) -> ClassEnvironment:
    return up(queue.seat("ada"), plan_in_seat(1), root)


@pytest.mark.parametrize(
    "attack",
    [
        lambda one: one.post("cancel", "../../etc", "x"),
        lambda one: one.post("cancel", "--follow", "x"),
        lambda one: one.post("cancel", RUN, "--leash"),
        lambda one: one.post("cancel", RUN, "a\nb"),
        lambda one: one.post("cancel", RUN, "x" * 5000),
        lambda one: one.post("requests", RUN, "x"),
        lambda one: list(one.stream("../x", {}, follow=False)),
        lambda one: list(one.stream("-", {}, follow=False)),
        lambda one: list(one.stream(RUN, {"a": "b"}, follow=False)),
        lambda one: one.inject_network_fault("tf1", ["--help"]),
        lambda one: one.inject_network_fault("tf1", ["kill"]),
        lambda one: one.inject_network_fault("tf1", ["cut:5s", "cut:5s"]),
        lambda one: one.inject_network_fault("-n", ["cut:5s"]),
        lambda one: one.shell("worker-0"),
    ],
)
def test_bad_requests_are_refused(
    environment: ClassEnvironment, attack: Callable[[ClassEnvironment], object]
) -> None:
    with pytest.raises(InputError):
        attack(environment)


def test_errors_keep_their_class(environment: ClassEnvironment, host: Host) -> None:
    host.tasks_do = until_cancelled
    (one,) = host.environments.values()
    one.tasks_do = until_cancelled
    environment.submit(request(environment))
    with pytest.raises(Busy, match=f"run {RUN} is under way"):
        environment.submit(request(environment, RUN[:-1] + "3"))
    environment.cancel(RUN, "enough")
    environment.inject_network_fault("tf1", ["cut:5s"])
    assert one.disturbed == [("tf1", "cut:5s")]
    one.unshakable = "the kernel refuses"
    with pytest.raises(LabError, match="node tf1: the kernel refuses"):
        environment.inject_network_fault("tf1", ["cut:5s"])


def frames(*chunks: Chunk) -> bytes:
    return b"".join(map(encode_frame, chunks))


def send(environment: ClassEnvironment, body: bytes) -> None:
    """Send a body as a seat does that has another client."""
    queue = environment._queue
    address = f"{queue.url}/environments/{environment.status.id}/submit"
    attack = urllib.request.Request(  # noqa: S310
        address, body, {"Authorization": f"token {queue.token}"}, method="POST"
    )
    with urllib.request.urlopen(attack, timeout=60):  # noqa: S310
        pass


def with_request(environment: ClassEnvironment, *chunks: Chunk) -> bytes:
    text = request(environment).to_json().encode()
    return frames(Chunk("request.json", None, text), *chunks)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (lambda _: b"", "does not begin with the request"),
        (lambda _: b"{}\n" * 3, "does not begin with the request"),
        (lambda _: b"\x00" * 20_000, "a frame begins with a line that is too long"),
        (lambda _: frames(Chunk("program/a.py", 0, b"")), "does not begin with the request"),
        (lambda _: frames(Chunk("request.json", 0, b"{}")), "not a request"),
        (lambda one: with_request(one, Chunk("evil", 0, b"")), "is no file of a part"),
        (lambda one: with_request(one, Chunk("program", 0, b"")), "is no file of a part"),
        (lambda one: with_request(one, Chunk("tasks/worker-0.jsonl", 0, b"")), "is no file"),
        (
            lambda one: (
                with_request(one) + b'{"path": "program/../../../evil", "offset": 0, "size": 0}\n'
            ),
            "a frame with an unsafe path",
        ),
        (
            lambda one: with_request(one) + b'{"path": "/etc/evil", "offset": 0, "size": 0}\n',
            "a frame with an unsafe path",
        ),
        (
            lambda one: frames(
                Chunk(
                    "request.json",
                    None,
                    replace(request(one), cluster={"ps": ["x:1"]}).to_json().encode(),
                )
            ),
            "the request is for another environment",
        ),
        (
            lambda one: with_request(one, *(Chunk(f"files/{n}", 0, b"") for n in range(10_001))),
            "more than 10,000 files",
        ),
        (
            lambda one: with_request(
                one, *(Chunk(f"files/{n}{'/a' * 400}/x", 0, b"") for n in range(30))
            ),
            "more than 10,000 files, directories or pieces",
        ),
        (
            lambda one: with_request(one, Chunk("program/a", 0, b""), Chunk("program/a/b", 0, b"")),
            "cannot store the run's files",
        ),
    ],
)
def test_bad_parts_are_refused(
    environment: ClassEnvironment,
    host: Host,
    body: Callable[[ClassEnvironment], bytes],
    match: str,
) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        send(environment, body(environment))
    assert match in json.loads(caught.value.read())["error"]
    (one,) = host.environments.values()
    assert one.runs() == []


def test_an_upload_that_is_too_large_is_cut_off(
    environment: ClassEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "MAX_PARTS_BYTES", 1 << 16)
    with pytest.raises((urllib.error.URLError, OSError)):
        send(environment, b"x" * (1 << 20))


@pytest.mark.parametrize(
    ("who", "breaks_off", "limit_s"),
    [
        (["bob"] * 20, True, 600.0),
        (["bob"] * 20, False, 600.0),  # a seat has one upload at a time
        (["bob", "teacher"], False, 0.1),
    ],
)
def test_uploads_that_do_not_end_keep_no_other_from_its_own(
    queue: QueueUnderTest,
    environment: ClassEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    who: list[str],
    limit_s: float,
    *,
    breaks_off: bool,
) -> None:
    monkeypatch.setattr(handlers, "_UPLOAD_S", limit_s)
    address = urllib.parse.urlsplit(queue.url)
    head = f"POST /environments/{environment.status.id}/submit HTTP/1.1\r\nHost: queue\r\n"
    with ExitStack() as connections:
        for name in who:
            one = socket.create_connection((address.hostname, address.port))
            connections.enter_context(one)
            sends = f"Authorization: token token-of-{name}\r\nContent-Length: 100000\r\n\r\n"
            one.sendall((head + sends).encode() + b"x" * 1000)
            if breaks_off:
                one.close()
        environment.submit(request(environment))
    assert RUN in [each.run_id for each in environment.runs()]
    wait_for(lambda: queue.seat("bob").unavailable_reason() is None, "the requests still count")


def test_a_message_that_is_too_large_is_cut_off(queue: QueueUnderTest) -> None:
    body = {"config": "x" * (3 << 20)}
    with pytest.raises(LabError):
        client.Queue(queue.url, "token-of-ada").request("POST", "", body)


def test_a_seat_that_stops_reading_leaves_no_stream(
    environment: ClassEnvironment, host: Host, queue: QueueUnderTest
) -> None:
    (one,) = host.environments.values()
    one.tasks_do = until_cancelled
    environment.submit(request(environment))
    stream = environment.stream(RUN, {}, follow=True)
    next(stream)
    assert queue.turns.streams(environment.status.id) == 1
    stream.close()  # type: ignore[attr-defined]
    wait_for(lambda: not queue.turns.streams(environment.status.id), "the stream goes on")
    environment.cancel(RUN, "enough")


def test_a_stream_that_breaks_off_is_no_end(
    environment: ClassEnvironment, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = host.environments.values()
    environment.submit(request(environment))

    def broken(*_: object, **__: object) -> Iterator[Chunk | None]:
        yield Chunk("logs/a.log", 0, b"x")
        raise LabError("the container has ended")

    monkeypatch.setattr(type(one), "stream", broken)
    with pytest.raises(LabError, match="broke off"):
        collected(environment)


def test_a_seat_has_few_requests_at_the_same_time(
    queue: QueueUnderTest, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "MAX_REQUESTS", 0)
    with pytest.raises(LabError, match="too many requests at the same time"):
        up(queue.seat("ada"), plan_in_seat(1), root)


def test_an_environment_of_which_nothing_is_left(environment: ClassEnvironment, host: Host) -> None:
    host.environments.clear()
    with pytest.raises(LabError, match="nothing is left of environment 'mnist'"):
        environment.tasks()


def test_a_stream_that_is_no_stream(
    environment: ClassEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.submit(request(environment))
    monkeypatch.setattr(handlers, "_frames", lambda *_: iter([b"no frame\n"]))
    with pytest.raises(LabError, match=f"collecting run {RUN} stopped: not a frame"):
        collected(environment)


def test_an_environment_that_does_not_end(
    environment: ClassEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.backends.classroom.environment._END_S", 0.0)
    monkeypatch.setattr(turns.Turns, "remove", lambda *_args, **_options: None)
    with pytest.raises(LabError, match="the queue has not ended mnist after 0 s"):
        environment.down(lambda _line: None)


def test_an_answer_that_is_not_of_the_queue(
    queue: QueueUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        handlers._Handler, "write_error", lambda self, *_args, **_options: self.finish("<html>")
    )
    reason = queue.seat("eve").unavailable_reason()
    assert reason is not None
    assert reason.startswith("the queue of the class refused: HTTP Error 403")


def test_a_full_disk_stops_no_turn_for_ever(
    tmp_path: Path, host: Host, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_queue(tmp_path / "queue", host) as queue:
        first = up(queue.seat("ada"), plan_in_seat(4), root)
        second, lines = in_thread(queue.seat("bob"), plan_in_seat(4), root)
        wait_for(lambda: lines, "bob has no place")
        write, refused = Ledger.write, threading.Event()

        def full(ledger: Ledger, entries: object) -> bool:
            if entries != ledger.entries:
                refused.set()
                raise OSError(28, "No space left on device")
            return False

        monkeypatch.setattr(Ledger, "write", full)
        with pytest.raises(LabError, match="the queue failed; see its log"):
            first.give_back(keep=False)
        assert refused.is_set()
        assert queue.entry("ada").state is State.UP
        monkeypatch.setattr(Ledger, "write", write)
        first.down(lambda _line: None)
        second.result(60)


def test_outside_a_seat_there_is_no_queue(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.delenv(URL, raising=False)
    assert ClassBackend().unavailable_reason() == (
        "this is no seat of a class with a queue; use `--backend local`"
    )
    monkeypatch.setenv(URL, "http://127.0.0.1:9/")
    monkeypatch.setenv(TOKEN, "secret")
    reason = ClassBackend().unavailable_reason()
    assert reason is not None
    assert reason.startswith("the queue of the class does not answer: ")


def test_requests_are_repeated_while_the_queue_starts_again(
    tmp_path: Path, host: Host, root: Path
) -> None:
    with a_queue(tmp_path / "queue", host) as queue:
        environment = up(queue.seat("ada"), plan_in_seat(1), root)
    future = in_background(environment.tasks)
    with a_queue(tmp_path / "queue", host, port=int(queue.url.rpartition(":")[2])):
        assert len(future.result(60)) == 3


def test_an_answer_of_another_version_is_an_error(
    environment: ClassEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(handlers._CALLS, "tasks", lambda _one: [{"task": 3}])  # type: ignore[attr-defined]
    with pytest.raises(LabError, match="another version of lab than this seat"):
        environment.tasks()


def test_config_errors_have_all_problems(queue: QueueUnderTest) -> None:
    order = {
        "config": "version: 2\nname: 3\nnodes: {}\njobs: {}\n",
        "with_gpus": True,
        "cluster_sha256": "0" * 64,
        "folder": "/",
        "tensorflow": "2.21",
    }
    with pytest.raises(InputError, match=r"the cluster config:1:10: version: must be 1") as caught:
        client.Queue(queue.url, "token-of-ada").request("POST", "", order)
    assert isinstance(caught.value, ConfigError)
    assert len(caught.value.problems) > 1


def test_an_environment_that_the_queue_ended_without_a_reason() -> None:
    ended = Status(
        id="1",
        name="mnist",
        state=State.ENDED,
        folder="",
        cluster_sha256="",
        tensorflow="2.21",
    )
    environment = ClassEnvironment(client.Queue("http://127.0.0.1:9", "token"), ended)
    with pytest.raises(LabError, match="the queue ended the environment; try again"):
        _wait(environment, lambda _: None)
