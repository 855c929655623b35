"""Seats and their queue, over real HTTP; the containers are fake."""

from __future__ import annotations

import http.client
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from lab.backends.classroom.backend import ClassBackend
from lab.backends.classroom.environment import ClassEnvironment
from lab.backends.classroom.protocol import MAX_CONFIG_CHARACTERS, State
from lab.backends.environment import Environment
from lab.backends.state import Busy
from lab.classroom.queue.ledger import Ledger
from lab.errors import InputError, LabError
from lab.log import passed_on
from lab.run.discovery import statuses_of
from lab.variables import LAB_QUEUE_URL
from lab.volume import Request, RunSpec
from lab.volume.states import State as RunState
from tests.support.agents import wait_for
from tests.support.queueing import (
    GPUS,
    RUN,
    SLICE_S,
    Host,
    QueueUnderTest,
    a_queue,
    collected,
    plan_in_seat,
    request,
    until_cancelled,
)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueUnderTest]:
    with a_queue(tmp_path / "queue", Host(tmp_path / "volumes")) as found:
        yield found


@pytest.fixture
def environment(queue: QueueUnderTest) -> ClassEnvironment:
    return queue.up("ada", 1)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.backends.classroom.environment._POLL_S", 0.02)
    monkeypatch.setattr("lab.backends.classroom.backend._PATIENCE_S", 0.0)


def order(**changes: object) -> dict[str, object]:
    known = {"config": plan_in_seat(1).config, "with_gpus": True, "cluster_sha256": "0" * 64}
    return {**known, "folder": "/", "tensorflow": "2.21", **changes}


def config_with(node: str = "", *, nodes: int = 1, jobs: int = 1) -> str:
    names = "".join(f"  n{number}: {{{node}}}\n" for number in range(nodes))
    return f"version: 1\nname: m\nnodes:\n{names}jobs: {{worker: {{on: [{'n0,' * jobs}]}}}}\n"


def test_a_run_from_the_queue_to_its_records(queue: QueueUnderTest, tmp_path: Path) -> None:
    lines: list[str] = []
    with passed_on(lines.append):
        environment = queue.up("ada", 2)
    project = queue.entry("ada").project
    assert queue.host.booted == [(project, GPUS[:2], "a")]
    assert lines == [
        "the turn has begun; if others wait, it ends 10 min after the first step",
        f"booting {project}",
    ]
    assert (environment.project, environment.folder) == ("mnist", str(queue.root))
    assert environment.cluster_sha256 == plan_in_seat(2).cluster_sha256
    assert [(task.task, task.gpus) for task in environment.tasks()] == [
        ("ps-0", ()), ("worker-0", GPUS[:2]), ("worker-1", ()),
    ]  # fmt: skip
    parts = tmp_path / "program"
    (parts / "below").mkdir(parents=True)
    (parts / "below" / "big.py").write_bytes(b"x" * (3 << 20))
    environment.submit(request(environment), {"program": parts})
    files = collected(environment)
    assert files["program/below/big.py"] == b"x" * (3 << 20)
    assert b'"kind": "final"' in files["tasks/worker-0.jsonl"]
    assert [each.run_id for each in environment.runs()] == [RUN]
    environment.mark_collected(RUN, "/home/student/runs")
    assert environment.collected() == {RUN: "/home/student/runs"}
    assert environment.provenance() == {"interpreter": "fake"}
    assert environment.boot_file() == ("processes.json", "{}\n")
    assert list(environment.logs(["ps-0"], follow=False, tail=None)) == ["ps-0  | \\x1b[31mred"]
    environment.down()
    assert queue.host.environments[project].is_down
    assert queue.state("ada") is None
    assert [path.name for path in (tmp_path / "queue").iterdir()] == ["ledger.json"]
    with pytest.raises(LabError, match="the queue has no environment"):
        environment.tasks()


# ---- Turns


def test_a_seat_waits_sees_its_place_and_gets_its_turn(queue: QueueUnderTest) -> None:
    first = queue.up("ada", 4)
    second, lines = queue.waiting("bob", 4)
    assert lines[0] == "position 1 in the queue, about 12 min"
    place = queue.seat("bob").find_any("mnist")
    assert place is not None
    assert not place.is_up
    assert (place.tasks(), place.runs(), place.cluster_spec()) == ([], [], {})
    assert queue.seat("bob").find("mnist") is None
    with pytest.raises(InputError, match="is waiting"):
        place.submit(request(first))
    with pytest.raises(InputError, match="'mnist' waits for its turn"):
        place.cancel(RUN, "enough")
    first.down()
    second.result(60)
    assert [gpus for _, gpus, _ in queue.host.booted] == [GPUS, GPUS]


def test_an_interrupt_gives_the_place_back(queue: QueueUnderTest) -> None:
    queue.up("ada", 4)
    interrupted = passed_on(lambda _: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), interrupted:
        queue.up("bob", 4)
    assert queue.state("bob") is None


def test_a_seat_that_no_longer_asks_loses_its_place(queue: QueueUnderTest) -> None:
    queue.up("ada", 4)
    queue.client("bob").request("POST", "", order(config=plan_in_seat(4).config))
    assert queue.state("bob") is State.WAITING
    queue.turns.delays = replace(queue.turns.delays, no_follow_s=0.0)
    queue.wait("bob", None)
    assert queue.state("ada") is State.UP


def test_the_turn_ends_when_others_wait(queue: QueueUnderTest) -> None:
    queue.host.tasks_do = until_cancelled
    first = queue.up("ada", 4)
    first.submit(request(first))
    with pytest.raises(Busy, match=f"run {RUN} is under way"):
        first.submit(request(first, RUN[:-1] + "3"))
    queue.clock.now += 2 * SLICE_S
    queue.waiting("bob", 2)[0].result(60)
    # The run was cancelled with its volume kept, so the seat still collects it.
    assert (queue.entry("ada").state, queue.entry("ada").gpus) == (State.ENDED, ())
    assert queue.cancel_reason("ada", RUN) == "its turn of 10 min has ended; start it again"
    left = queue.seat("ada").find_any("mnist")
    assert left is not None
    assert not left.is_up
    assert {each.state for each in statuses_of(left, RUN).values()} == {RunState.CANCELLED}
    assert b'"kind": "start"' in collected(left)["tasks/worker-0.jsonl"]
    left.down()
    assert queue.state("ada") is None


def test_the_service_notes_the_first_step(queue: QueueUnderTest) -> None:
    queue.host.tasks_do = lambda volume, request: until_cancelled(volume, request, 1)
    ada = queue.up("ada", 1)
    assert queue.entry("ada").stepped_unix == 0.0
    queue.clock.now += 70.0
    ada.submit(request(ada))
    wait_for(lambda: queue.entry("ada").stepped_unix, "no step is noted")
    assert (
        queue.entry("ada").stepped_unix == queue.clock.now == queue.entry("ada").granted_unix + 70
    )
    ada.cancel(RUN, "enough")


def test_a_volume_stays_until_its_run_is_collected_and_a_while(queue: QueueUnderTest) -> None:
    ada, seat = queue.up("ada", 1), queue.seat("ada")
    ada.submit(request(ada))
    assert collected(ada)
    ada.down(keeps=lambda: True)
    queue.clock.now += 10 * queue.turns.delays.keep_s
    with pytest.raises(InputError, match="'mnist' that this seat has not collected"):
        queue.up("ada", 1)
    left = seat.find_any("mnist")
    assert collected(left)
    left.mark_collected(RUN, "/home/student/runs")
    queue.wait("ada", None)
    queue.up("ada", 1).down(keeps=lambda: True)
    assert queue.state("ada") is State.ENDED  # it had no run, and is kept for a while
    assert queue.host.environments[queue.entry("ada").project].volume_stays
    queue.clock.now += queue.turns.delays.keep_s + 1
    queue.wait("ada", None)


def test_an_idle_environment_ends_and_a_training_one_goes_on(queue: QueueUnderTest) -> None:
    queue.host.tasks_do = until_cancelled
    training = queue.up("ada", 1)
    training.submit(request(training))
    queue.up("bob", 1)
    queue.turns.delays = replace(queue.turns.delays, idle_s=0.02)
    queue.wait("bob", State.ENDED)
    assert queue.entry("bob").reason == "it was idle for 0 s"
    assert queue.state("ada") is State.UP
    training.cancel(RUN, "enough")
    queue.wait("ada", State.ENDED)


def test_containers_that_ended_end_the_turn(
    queue: QueueUnderTest, environment: ClassEnvironment
) -> None:
    (one,) = queue.host.environments.values()
    one.volume_stays = one.is_down = True
    queue.wait("ada", State.ENDED)
    assert "the host may have been restarted" in queue.entry("ada").reason


def test_a_boot_or_a_check_that_fails_frees_the_gpus(queue: QueueUnderTest) -> None:
    def unhealthy(_project: str) -> None:
        raise LabError("worker-0 is unhealthy", "fix it")

    def check(environment: Environment) -> None:
        raise LabError(f"wrong GPUs of {environment.tasks()[1].task}")

    queue.host.boots = unhealthy
    with pytest.raises(LabError, match="worker-0 is unhealthy; fix it"):
        queue.up("ada", 4)
    queue.wait("ada", None)
    queue.host.boots = print
    with pytest.raises(LabError, match="wrong GPUs of worker-0"):
        queue.up("ada", 4, check=check)
    queue.wait("ada", None)
    queue.up("bob", 4)


def test_a_place_that_is_given_back_during_the_boot(queue: QueueUnderTest) -> None:
    go_on = threading.Event()
    queue.host.boots = lambda _project: go_on.wait(60)
    future, _ = queue.waiting("ada", 4)
    found = queue.seat("ada").find_any("mnist")
    assert found is not None
    found.give_back(keep=False)
    assert queue.entry("ada").gpus == GPUS  # until the containers are gone
    go_on.set()
    with pytest.raises(LabError, match="its seat removed it"):
        future.result(60)
    queue.wait("ada", None)
    (one,) = queue.host.environments.values()
    assert one.is_down


@pytest.mark.parametrize("state", [State.GRANTED, State.UP, State.ENDING, State.ENDED])
def test_a_killed_service_goes_on(tmp_path: Path, state: State) -> None:
    folder, host = tmp_path / "queue", Host(tmp_path / "volumes")
    with a_queue(folder, host) as queue:
        queue.up("ada", 3)
        entry = queue.entry("ada")
    # The ledger as a service leaves it that was killed in this state.
    gpus = {"gpus": (), "network": ""} if state is State.ENDED else {}
    Ledger(folder / "ledger.json").write((msgspec.structs.replace(entry, state=state, **gpus),))
    if state is State.ENDED:
        host.environments[entry.project].is_down = True
        host.environments[entry.project].volume_stays = True
    with a_queue(folder, host) as queue:
        after = State.UP if state in {State.GRANTED, State.UP} else State.ENDED
        queue.wait("ada", after)
        later, _ = queue.waiting("bob", 4)
        if after is State.UP:
            assert queue.entry("ada").gpus == GPUS[:3]
            found = queue.seat("ada").find("mnist")
            assert found is not None
            found.submit(request(found))
            assert collected(found)
            assert not later.done()  # ada has GPUs that bob needs
            found.down()
        later.result(60)
    assert len(host.booted) == (3 if state is State.GRANTED else 2)


def test_a_full_disk_stops_no_turn_for_ever(
    queue: QueueUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = queue.up("ada", 4)
    second, _ = queue.waiting("bob", 4)
    write = Ledger.write

    def full(ledger: Ledger, entries: object) -> bool:
        if entries != ledger.entries:
            raise OSError(28, "No space left on device")
        return False

    monkeypatch.setattr(Ledger, "write", full)
    with pytest.raises(LabError, match="the queue failed; see its log"):
        first.give_back(keep=False)
    assert queue.entry("ada").state is State.UP
    monkeypatch.setattr(Ledger, "write", write)
    first.down()
    second.result(60)


def test_a_seat_sees_only_its_own(queue: QueueUnderTest, environment: ClassEnvironment) -> None:
    assert queue.seat("ada").projects() == ["mnist"]
    assert queue.seat("bob").projects() == []
    other = ClassEnvironment(queue.client("bob"), environment.status)
    for attack in (
        other.tasks,
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


def test_only_the_teacher_ends_the_environments_of_a_seat(queue: QueueUnderTest) -> None:
    queue.host.tasks_do = lambda volume, request: until_cancelled(volume, request, 40)
    one = queue.up("ada", 4)
    one.submit(request(one))
    future, _ = queue.waiting("bob", 4)
    end = "/environments?keep=1&seat="
    for seat in ("ada", "bob"):
        assert status_of(queue, "DELETE", f"{end}ada", seat) == 403
    assert queue.state("ada") is State.UP
    for seat in ("bob", "ada"):
        assert status_of(queue, "DELETE", f"{end}{seat}", "teacher") == 200
    queue.wait("ada", State.ENDED)
    assert queue.entry("ada").reason == "the teacher ended it"
    assert queue.cancel_reason("ada", RUN) == f"the teacher ended it; continue with --resume {RUN}"
    with pytest.raises(LabError, match="the queue has no environment"):
        future.result(60)
    assert queue.state("bob") is None
    assert collected(queue.seat("ada").find_any("mnist"))  # the seat can still collect it
    assert status_of(queue, "DELETE", "/environments?seat=ada", "teacher") == 200
    queue.wait("ada", None)
    with pytest.raises(LabError, match="the teacher has no seat"):
        queue.up("teacher", 1)


@pytest.mark.parametrize("token", ["", "eve", "ada-", "*"])
def test_a_token_without_access_is_refused(queue: QueueUnderTest, token: str) -> None:
    for method, path in (("GET", "/environments"), ("POST", "/environments"), ("GET", "/no")):
        assert status_of(queue, method, path, token) == 403


def status_of(queue: QueueUnderTest, method: str, path: str, token: str) -> int:
    """The HTTP status of a request without a body."""
    connection = http.client.HTTPConnection(queue.url.removeprefix("http://"), timeout=60)
    with closing(connection):
        connection.request(method, path, headers={"Authorization": f"token token-of-{token}"})
        return connection.getresponse().status


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"config": "x" * (MAX_CONFIG_CHARACTERS + 1)}, "more than 65,536 characters"),
        ({"tensorflow": "9"}, "no TensorFlow version '9'"),
        ({"cluster_sha256": "../x"}, "cluster_sha256 is no digest"),
        ({"config": 3}, "not a message of the queue"),
        ({"config": plan_in_seat(5).config}, "needs 5 GPUs, and the queue has 4"),
        (
            {"config": config_with("gpus: [GPU-11111111-1111-1111-1111-111111111111]")},
            "by its UUID",
        ),
        ({"config": config_with(jobs=33)}, "has 33 tasks, and the queue allows 32"),
        ({"config": config_with(nodes=14)}, "has 14 nodes, and the queue allows 13"),
        ({"config": "version: 2\nname: 3\n"}, "config:1:10: version: must be 1"),
    ],
)
def test_bad_orders_are_refused(
    queue: QueueUnderTest, change: dict[str, object], match: str
) -> None:
    with pytest.raises(InputError, match=match):
        queue.client("ada").request("POST", "", order(**change))
    assert queue.turns.ledger.entries == ()


@pytest.mark.parametrize(
    "attack",
    [
        lambda one: one.post("cancel", "../../etc", "x"),
        lambda one: one.post("cancel", RUN, "--leash"),
        lambda one: one.post("requests", RUN, "x"),
        lambda one: one.inject_network_fault("-n", ["cut:5s"]),
        lambda one: one.submit(Request(RUN, RunSpec("async"), {"ps": ["of:1", "another:1"]})),
    ],
)
def test_bad_requests_are_refused(
    environment: ClassEnvironment, attack: Callable[[ClassEnvironment], object]
) -> None:
    with pytest.raises(InputError):
        attack(environment)


def test_uploads_that_do_not_end_keep_no_other_from_its_own(
    queue: QueueUnderTest, environment: ClassEnvironment
) -> None:
    host, port = queue.url.removeprefix("http://").split(":")
    head = f"POST /environments/{environment.status.id}/submit HTTP/1.1\r\nHost: queue\r\n"
    head += "Authorization: token token-of-bob\r\nContent-Length: 100000\r\n\r\nx"
    with ExitStack() as connections:
        for _ in range(20):
            one = connections.enter_context(socket.create_connection((host, int(port))))
            one.sendall(head.encode())
        environment.submit(request(environment))
    wait_for(lambda: queue.seat("bob").unavailable_reason() is None, "the requests still count")


def test_a_seat_sends_only_a_few_requests_at_the_same_time(tmp_path: Path) -> None:
    with (
        a_queue(tmp_path / "queue", Host(tmp_path / "volumes"), max_requests=0) as queue,
        pytest.raises(LabError, match="too many requests at the same time"),
    ):
        queue.up("ada", 1)


def test_outside_a_seat_there_is_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LAB_QUEUE_URL, raising=False)
    assert "this is no seat of a class with a queue" in str(ClassBackend().unavailable_reason())
