"""Seats and their queue, over real HTTP; the containers are fake."""

from __future__ import annotations

import errno
import http.client
import json
import logging
import math
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from lab.backends.state import Busy
from lab.base.errors import InputError, LabError
from lab.base.log import passed_on
from lab.base.threads import in_background
from lab.base.variables import LAB_QUEUE, LAB_STATE
from lab.protocol.volume.files import write_atomically
from lab.protocol.volume.states import State as RunState
from lab.runner.lifecycle import statuses_of
from lab.teach.classroom.backend import ClassBackend
from lab.teach.classroom.protocol import Queue, State, Status
from lab.teach.classroom.queue.ledger import MAX_CONFIG_CHARACTERS, Entry, Ledger, admitted
from lab.teach.classroom.queue.service import LIMITS, MAX_BODY_BYTES, MAX_REQUESTS
from tests.support.agents import wait_for
from tests.support.fakes import os_error, raising
from tests.support.queueing import (
    GPUS,
    PATIENCE_S,
    RUN,
    SLICE_S,
    FakeHost,
    QueueUnderTest,
    a_queue,
    collected,
    plan_in_seat,
    request,
    until_cancelled,
)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueUnderTest]:
    host = FakeHost()
    with a_queue(tmp_path / "queue", host) as found:
        yield found
    host.stop()


def order(queue: QueueUnderTest, **changes: object) -> dict[str, object]:
    known = {"id": "0" * 16, "config": plan_in_seat(1).config, "with_gpus": True}
    paths = {"folder": "/", "directory": str(queue.root / "x")}
    return {**known, **paths, "runtime": "tensorflow", **changes}


def config_with(node: object = {}, *, nodes: int = 1, jobs: int = 1, **more: object) -> str:
    names = {f"n{number}": node for number in range(nodes)}
    whole = {"version": 1, "name": "m", "nodes": names, "jobs": {"worker": {"on": ["n0"] * jobs}}}
    return json.dumps({**whole, **more})


def status_of(queue: QueueUnderTest, method: str, path: str, token: str, body: bytes = b"") -> int:
    connection = http.client.HTTPConnection(queue.url.removeprefix("http://"), timeout=60)
    with closing(connection):
        headers = {"Authorization": f"token token-of-{token}"}
        connection.request(method, path, body, headers=headers)
        return connection.getresponse().status


def wait_for_a_look(queue: QueueUnderTest) -> None:
    """Wait until the service has looked at the ledger once more, from begin to end."""
    with mock.patch.object(queue.turns, "advance", wraps=queue.turns.advance) as looks:
        wait_for(lambda: looks.call_count > 1, "the service looks again")


def test_an_environment_of_the_queue(queue: QueueUnderTest, tmp_path: Path) -> None:
    lines: list[str] = []
    with passed_on(lines.append):
        environment = queue.up("ada", 2)
    project = queue.entry("ada").project
    assert queue.host.booted == [(project, GPUS[:2], "a")]
    assert lines[-1] == "its turn begins; if others wait, it ends after 10 min"
    assert [task.gpus for task in environment.tasks()] == [(), GPUS[:2], ()]
    assert environment.provenance() == {"image": "sha256:fake"}
    assert json.loads(environment.boot_file()[1])["id"] == queue.entry("ada").order.id
    with pytest.raises(
        LabError, match="queued containers cannot change the network of node tf1; use"
    ):
        environment.inject_network_fault("tf1", ["cut:5s"])
    program = tmp_path / "program"
    program.mkdir()
    (program / "big.py").write_bytes(b"x" * (3 << 20))
    environment.submit(request(environment), {"program": program})
    files = collected(environment)
    assert files["program/big.py"] == b"x" * (3 << 20)
    assert b'"kind": "final"' in files["tasks/worker-0.jsonl"]
    output = queue.volume("ada").root.with_name("output") / "ps-0.log"
    output.write_text("2026-11-24T06:00:00.000000Z listens\x1b\n")
    assert list(environment.logs(["ps-0"], follow=False, tail=None)) == ["ps-0  | listens\\x1b"]
    environment.down()
    assert queue.host.environments[project].is_down
    assert queue.state("ada") is None
    assert [path.name for path in (tmp_path / "queue").iterdir()] == ["ledger.json"]


def test_a_seat_waits_sees_its_place_and_gets_its_turn(queue: QueueUnderTest) -> None:
    first = queue.up("ada", 4)
    second, lines = queue.waiting("bob", 4)
    assert lines[0] == "position 1 in the queue"
    place = queue.found("bob")
    assert not place.is_up
    assert not any(task.alive for task in place.tasks())
    assert (place.runs(), place.tasks()[0].detail) == ([], "waiting")
    with pytest.raises(LabError, match="the environment 'speech' of the queue waits for its turn"):
        place.submit(request(first))
    first.down()
    second.result(60)
    assert [gpus for _, gpus, _ in queue.host.booted] == [GPUS, GPUS]


def test_a_seat_that_no_longer_asks_loses_its_place(queue: QueueUnderTest) -> None:
    queue.up("ada", 4)
    queue.client("bob").request(Status, "PUT", body=order(queue, config=plan_in_seat(4).config))
    assert queue.state("bob") is State.WAITING
    queue.turns.no_follow_s = 0.0
    queue.wait("bob", None)
    assert queue.state("ada") is State.UP


def test_a_repeated_order_changes_nothing_and_another_one_waits(queue: QueueUnderTest) -> None:
    client = queue.client("ada")
    first = client.request(Status, "PUT", body=order(queue))
    queue.wait("ada", State.UP)
    again = client.request(Status, "PUT", body=order(queue, config="x"))
    assert (again.id, again.state) == (first.id, State.UP)
    with pytest.raises(
        InputError, match="this seat already has the environment 'mnist' in the queue"
    ):
        client.request(Status, "PUT", body=order(queue, id="1" * 16))
    with pytest.raises(LabError, match="the queue has another environment of this seat"):
        client.request(bool, "DELETE", f"?id={'1' * 16}")  # of an earlier environment
    assert queue.state("ada") is State.UP


@pytest.mark.parametrize("delay", ["follows_s", "grace_s"])
def test_a_run_that_is_not_given_back_ends_with_its_containers(
    queue: QueueUnderTest, delay: str
) -> None:
    queue.host.tasks_do = until_cancelled
    first = queue.up("ada", 4)
    first.submit(request(first))
    setattr(queue.turns, delay, 0.0)
    queue.clock.now += 2 * SLICE_S
    second, _ = queue.waiting("bob", 2)
    queue.clock.now += 1.0
    second.result(60)
    assert (queue.entry("ada").state, queue.entry("ada").gpus) == (State.ENDED, ())
    assert queue.entry("ada").reason == "its turn of 10 min has ended"
    # Its files are on the disk of the seat.
    left = queue.found("ada")
    assert {each.state for each in statuses_of(left, RUN).values()} == {RunState.CANCELLED}
    assert b'"kind": "start"' in collected(left)["tasks/worker-0.jsonl"]


def test_containers_that_ended_end_the_turn(queue: QueueUnderTest) -> None:
    environment = queue.up("ada", 1)
    queue.turns.follows_s = 0.0
    queue.host.stop()
    queue.wait("ada", State.ENDED)
    assert "the host may have been restarted" in queue.entry("ada").reason
    with pytest.raises(LabError, match=r"has ended: its containers have ended; .*`lab up`"):
        queue.found("ada").submit(request(environment))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (LabError("worker-0 is unhealthy", "see docker"), "worker-0 is unhealthy; try again"),
        (OSError("no docker"), "the boot failed; try again"),
    ],
)
def test_a_boot_that_fails_gives_its_gpus_back_and_is_not_repeated(
    queue: QueueUnderTest, error: Exception, message: str
) -> None:
    queue.host.boots = raising(error)
    future, _ = queue.waiting("ada", 4)
    with pytest.raises(LabError, match=message):
        future.result(60)
    queue.wait("ada", None)
    assert len(queue.host.booted) == 1
    queue.host.boots = print
    queue.up("bob", 4)


def test_containers_that_cannot_be_removed_keep_their_gpus(
    queue: QueueUnderTest,
) -> None:
    environment = queue.up("ada", 4)
    queue.host.ends = raising(LabError("the engine refuses"))
    ending = in_background(environment.down)
    wait_for(lambda: queue.turns._seats["ada"].not_before_s, "no failure", 10)
    assert queue.entry("ada").gpus == GPUS
    queue.host.ends = print
    ending.result(60)
    assert queue.state("ada") is None


def test_a_check_that_fails_does_not_delay_the_end(
    queue: QueueUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.turns.retry_s, queue.turns.follows_s = 1000.0, 0.0
    first = queue.up("ada", 4)

    checked = []

    def refuse(project: str) -> bool:
        checked.append(project)
        raise LabError("the engine refuses")

    runs = queue.host.runs
    monkeypatch.setattr(queue.host, "runs", refuse)
    wait_for(lambda: checked, "no check")
    monkeypatch.setattr(queue.host, "runs", runs)
    queue.clock.now += 2 * SLICE_S
    queue.waiting("bob", 4)[0].result(60)
    first.down()


@pytest.mark.parametrize("reason", ["its seat removed it", "the teacher ended it"])
def test_an_environment_that_must_end_during_its_boot(queue: QueueUnderTest, reason: str) -> None:
    go_on = threading.Event()
    queue.host.boots = lambda _project: go_on.wait(600)
    future, _ = queue.waiting("ada", 4)
    queue.wait("ada", State.GRANTED)
    if "seat" in reason:
        queue.client("ada").request(bool, "DELETE", f"?id={queue.entry('ada').order.id}")
    else:
        assert queue.client("teacher").request(bool, "DELETE", "?seat=ada")
    try:
        wait_for(lambda: queue.state("ada") is State.ENDING, "the boot goes on", 20)
        assert queue.entry("ada").gpus == GPUS  # until the containers are gone
    finally:
        go_on.set()
    with pytest.raises(LabError, match=reason):
        future.result(60)
    queue.wait("ada", None)
    (one,) = queue.host.environments.values()
    assert one.is_down


@pytest.mark.parametrize("state", [State.GRANTED, State.UP, State.ENDING, State.ENDED])
def test_a_killed_service_goes_on(tmp_path: Path, state: State) -> None:
    folder, host = tmp_path / "queue", FakeHost()
    with a_queue(folder, host) as queue:
        queue.up("ada", 3)
        entry = queue.entry("ada")
    # The ledger as a service leaves it that was killed in this state.
    gpus = {"gpus": (), "network": ""} if state is State.ENDED else {}
    ended = msgspec.structs.replace(entry, state=state, released=True, **gpus)
    Ledger(folder / "ledger.json", queue.turns.ledger.plan)._write({"ada": ended})
    if state in {State.GRANTED, State.ENDED}:
        host.stop()
    with a_queue(folder, host) as queue:
        after = State.UP if state in {State.GRANTED, State.UP} else State.ENDED
        queue.wait("ada", after)
        later, _ = queue.waiting("bob", 4)
        if after is State.UP:
            assert queue.entry("ada").gpus == GPUS[:3]
            found = queue.found("ada")
            found.submit(request(found))
            assert collected(found)
            assert not later.done()  # ada has GPUs that bob needs
            found.down()
        later.result(60)
    assert len(host.booted) == (3 if state is State.GRANTED else 2)
    host.stop()


def test_a_full_disk_stops_no_turn_for_ever(
    queue: QueueUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = queue.up("ada", 4)
    second, _ = queue.waiting("bob", 4)
    monkeypatch.setattr(
        "lab.teach.classroom.queue.ledger.write_atomically",
        raising(os_error(errno.ENOSPC)),
    )
    with pytest.raises(LabError, match="the queue failed; see its log"):
        first.down()
    assert queue.state("ada") is State.UP
    monkeypatch.setattr("lab.teach.classroom.queue.ledger.write_atomically", write_atomically)
    first.down()
    second.result(60)


def test_directories_that_containers_do_not_see_are_refused(
    queue: QueueUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"the project: / is not in .*`--backend local`"):
        queue.seat("ada").up(plan_in_seat(1), root=Path("/"))
    monkeypatch.setenv(LAB_STATE, "/tmp/elsewhere")
    with pytest.raises(InputError, match="LAB_STATE: /tmp/elsewhere/class/mnist is not in"):
        queue.up("ada", 1)
    assert queue.state("ada") is None


def test_a_token_opens_only_what_is_its_own_and_a_refusal_writes_no_log(
    queue: QueueUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    queue.up("ada", 1)

    of_ada = f"/environment?id={queue.entry('ada').order.id}"
    caplog.clear()
    with caplog.at_level(logging.WARNING, "root"):
        for token, method, path, body, code in (
            ("bob", "GET", "/environment", b"", 404),
            ("bob", "DELETE", of_ada, b"", 404),
            ("ada", "POST", "/environment", b"{}", 405),
            ("bob", "DELETE", "/environment?seat=ada", b"", 403),
            ("ada", "DELETE", "/environment?seat=ada", b"", 403),
            ("ada", "GET", "/no", b"", 404),
            ("ada", "PUT", "/environment", b"{", 400),
            ("ada", "PUT", "/environment", b'{"id": "\xff"}', 400),
            ("ada", "PUT", "/environment", b"x" * (MAX_BODY_BYTES + 1), 400),
            ("teacher", "PUT", "/environment", b"{}", 403),
            *(
                (each, method, path, b"", 403)
                for each in ("", "eve", "ada-", "*")
                for method, path in (
                    ("GET", "/environment"),
                    ("PUT", "/environment"),
                    ("GET", "/no"),
                )
            ),
        ):
            assert status_of(queue, method, path, token, body) == code, (token, method, path)
    assert caplog.messages == []
    assert queue.state("ada") is State.UP


def test_forged_statuses_and_links_decide_nothing(queue: QueueUnderTest, tmp_path: Path) -> None:
    """The queue ends turns by containers and clock, and reads no file of a seat."""
    queue.host.tasks_do = lambda _volume, _request: None  # the statuses are the test's own
    first = queue.up("ada", 4)
    first.submit(request(first))
    volume, elsewhere = queue.volume("ada"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret").write_text("secret")
    for task in plan_in_seat(4).tasks:
        volume.status(RUN, task.name).unlink(missing_ok=True)
        volume.status(RUN, task.name).symlink_to(elsewhere / "secret")
    volume.root.rename(volume.root.with_name("moved"))
    volume.root.symlink_to(elsewhere)
    queue.turns.follows_s = 0.0
    checks = queue.turns._seats["ada"].checked_s
    wait_for(lambda: queue.turns._seats["ada"].checked_s > checks + 0.1, "no check")
    assert queue.state("ada") is State.UP  # its containers run
    queue.clock.now += 2 * SLICE_S
    queue.waiting("bob", 2)[0].result(60)
    assert queue.state("ada") is State.ENDED
    assert (elsewhere / "secret").read_text() == "secret"


def test_the_teacher_ends_the_environment_of_a_seat_and_closes_the_seat_for_a_time(
    queue: QueueUnderTest,
) -> None:
    queue.host.tasks_do = until_cancelled
    one = queue.up("ada", 4)
    one.submit(request(one))
    with pytest.raises(Busy, match=f"run {RUN} is under way"):
        one.submit(request(one, RUN[:-1] + "3"))
    following = in_background(lambda: collected(one))
    future, _ = queue.waiting("bob", 4)
    for seat in ("bob", "ada", "eve"):
        assert status_of(queue, "DELETE", f"/environment?seat={seat}", "teacher") == 200
    following.result(60)
    assert queue.cancel_reason("ada") == "the teacher ended it; start it again"
    with pytest.raises(LabError, match="the queue ended the environment"):
        future.result(60)
    one.down()
    with pytest.raises(InputError, match="the teacher is ending the runs of this seat"):
        queue.up("ada", 1)
    queue.turns._seats["ada"].closed_s = 0.0  # a minute later
    queue.up("ada", 1)


def test_an_order_is_refused_if_its_seat_is_closed_while_it_is_checked(
    queue: QueueUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(*given: Any) -> Entry:
        begun.set()
        go_on.wait(60)
        return admitted(*given)

    monkeypatch.setattr("lab.teach.classroom.queue.turns.admitted", slowly)
    client, body = queue.client("ada"), order(queue)
    answer = in_background(lambda: client.request(Status, "PUT", body=body))
    assert begun.wait(60)
    assert not queue.client("teacher").request(bool, "DELETE", "?seat=ada")
    go_on.set()
    with pytest.raises(InputError, match="the teacher is ending the runs of this seat"):
        answer.result(60)
    assert queue.state("ada") is None


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"config": "x" * (MAX_CONFIG_CHARACTERS + 1)}, "more than 16,384 characters"),
        ({"config": "a: [1]"}, "the cluster config is invalid"),
        ({"config": config_with(jobs=0)}, "the cluster config is invalid"),
        ({"runtime": "9"}, "no framework '9'"),
        ({"id": "../x"}, "the id is invalid"),
        ({"directory": "relative"}, "not a path in the seat: 'relative'"),
        ({"folder": "/a\n/b"}, "not a path in the seat"),
        ({"config": 3}, "not a message of the queue"),
        (
            {"config": config_with({"gpus": ["GPU-11111111-1111-1111-1111-111111111111"]})},
            "names a GPU by its UUID, but the queue chooses the GPUs; use their number: `gpus: 1`",
        ),
        ({"config": config_with(nodes=14)}, "the cluster has 14 nodes, and the queue allows 13"),
        ({"config": config_with(jobs=33)}, "the cluster has 33 tasks, and the queue allows 32"),
    ],
)
def test_bad_orders_are_refused(
    queue: QueueUnderTest, change: dict[str, object], match: str
) -> None:
    with pytest.raises(InputError, match=match):
        queue.client("ada").request(Status, "PUT", body=order(queue, **change))
    assert queue.turns.ledger.entries == {}


def connected(queue: QueueUnderTest, head: str) -> tuple[socket.socket, int]:
    """A request whose body does not end, and its status; 100: the queue waits for the body."""
    host, port = queue.url.removeprefix("http://").split(":")
    one = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    lines = f"{head} HTTP/1.1\r\nHost: queue\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n"
    one.sendall(f"{lines}Authorization: token token-of-bob\r\n\r\n".encode())
    return one, int(one.recv(12).split()[1])


def test_a_seat_has_few_requests_at_a_time_and_one_order(queue: QueueUnderTest) -> None:
    """Those that stay open or break off keep no other seat from its own."""
    environment = queue.up("ada", 1)
    with ExitStack() as connections:

        def opened(head: str) -> int:
            one, status = connected(queue, head)
            connections.enter_context(one).sendall(b"x")
            return status

        assert [opened("PUT /environment") for _ in range(3)] == [100, 429, 429]
        assert status_of(queue, "GET", "/environment", "bob") == 404
        others = [opened("DELETE /environment?id=x") for _ in range(40)]
        assert others == [100] * (MAX_REQUESTS - 1) + [429] * (41 - MAX_REQUESTS)
        assert status_of(queue, "GET", "/environment", "bob") == 429
        environment.submit(request(environment))
        assert collected(environment)
    wait_for(lambda: status_of(queue, "GET", "/environment", "bob") == 404, "they still count", 5)


def test_a_body_that_does_not_end_has_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.queueing.LIMITS", {**LIMITS, "body_timeout": 0.1})
    with a_queue(tmp_path / "queue", FakeHost()) as queue:
        one, status = connected(queue, "PUT /environment")
        with one:
            assert status == 100
            one.recv(1 << 16)
            assert one.recv(1) == b""
        wait_for(lambda: status_of(queue, "PUT", "/environment", "bob") == 400, "it counts", 5)


def test_a_seat_that_waits_for_the_host_keeps_no_other_one_waiting(queue: QueueUnderTest) -> None:
    """Boots of many seats block threads, and none those of the others."""
    go_on = threading.Event()
    queue.host.boots = lambda _project: go_on.wait(60)
    blocked = [queue.turns._threads.submit(go_on.wait, 60) for _ in range(3 * 200 - 1)]
    try:
        client, body = queue.client("bob"), order(queue)
        answer = in_background(lambda: client.request(Status, "PUT", body=body))
        assert answer.result(10).state is State.GRANTED
    finally:
        go_on.set()
    queue.wait("bob", State.UP)
    assert all(each.result(60) for each in blocked)


def test_a_run_goes_on_while_the_queue_is_down(queue: QueueUnderTest) -> None:
    environment = queue.found("ada") if queue.up("ada", 1) else None
    assert environment.is_up
    environment._queue = Queue("http://127.0.0.1:9", "")
    environment._asked_s = -math.inf
    environment.submit(request(environment))
    assert b'"kind": "final"' in collected(environment)["tasks/worker-0.jsonl"]


def test_outside_a_seat_there_is_no_queue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(LAB_QUEUE, raising=False)
    assert "this is not a seat of a class with a queue" in str(ClassBackend().unavailable_reason())
    with pytest.raises(LabError, match="this is not a seat of a class with a queue"):
        ClassBackend().boot(plan_in_seat(1), root=tmp_path)
    assert os.environ.get(LAB_QUEUE) is None


def test_a_request_is_refused_before_its_body_is_read(queue: QueueUnderTest) -> None:
    for head, expected in (("PUT /no", 404), ("DELETE /environment?seat=ada", 403)):
        one, status = connected(queue, head)
        one.close()
        assert status == expected
