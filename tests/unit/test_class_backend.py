"""How commands choose the queue of a class, and what is different there."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.backends.classroom.backend import ClassBackend
from lab.backends.classroom.protocol import Gone, Queue
from lab.backends.names import CLASS
from lab.backends.selection import choose
from lab.config import parse_cluster
from lab.errors import InputError, LabError
from lab.log import shown_by
from lab.placement.plan import Plan
from lab.run.planning import make_plan, report_warnings
from lab.threads import in_background
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment

LOCAL = FakeBackend("local")
QUEUE = FakeBackend(CLASS)
NO_SEAT = FakeBackend(CLASS, fault="this is no seat")
NO_TF = FakeBackend("local", fault="no TensorFlow")
UP = FakeBackend(CLASS, FakeEnvironment(Path()))


@pytest.mark.parametrize(
    ("name", "known", "answer"),
    [
        (
            "auto",
            [LOCAL, QUEUE],
            "backend local: TensorFlow is installed here, and no task has a GPU",
        ),
        (CLASS, [LOCAL, QUEUE], "backend class: as requested"),
        ("auto", [LOCAL, UP], "backend class: environment 'mnist' is up"),
        (
            "auto",
            [NO_TF, QUEUE],
            "backend local: no TensorFlow, backend class: request it with `--backend class`",
        ),
        ("auto", [NO_TF, NO_SEAT], "backend local: no TensorFlow"),
        (CLASS, [LOCAL, NO_SEAT], "backend class: this is no seat"),
    ],
)
def test_auto_takes_no_place_in_the_queue(
    name: str, known: Sequence[Any], answer: str, root: Path
) -> None:
    lines: list[str] = []
    try:
        with shown_by(lines.append):
            choose(name, PLAN, root, known)
    except LabError as error:
        lines.append(str(error))
    assert lines == [answer]


def test_the_plan_is_for_the_host_of_the_class(
    monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    config = b"{version: 1, name: m, nodes: {tf1: {gpus: 2}}, jobs: {worker: {on: [tf1]}}}"
    cluster = parse_cluster(config, "cluster.yaml")

    def gpus(plan: Plan) -> tuple[str, ...]:
        return plan.tasks[0].gpus

    assert gpus(make_plan(cluster, "auto", backend=CLASS).plan) == ("0", "1")
    assert gpus(make_plan(cluster, "none", backend=CLASS).plan) == ()
    report_warnings(make_plan(cluster, "auto", backend=CLASS), cluster, "auto")
    assert notices == []


def test_containers_see_the_home_directory_of_the_seat_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    own = tmp_path / "home" / "mine"
    assert ClassBackend().task_path(own, tmp_path) == str(own)
    with pytest.raises(
        InputError, match=r"--data_dir: .* is not in .*home, .*; use a directory there"
    ):
        ClassBackend().task_path(tmp_path, tmp_path)


# ---- Requests

DONE = (200, b"true")
DOWN = (503, b"down")
Answer = tuple[int, bytes] | None


class Served:
    """A queue that sends given answers, one a connection; None: it closes the connection.

    Attributes:
        arrived: The methods of the requests.
        client: Its client.
    """

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self.arrived: list[str] = []
        self.client = Queue(f"http://127.0.0.1:{server.getsockname()[1]}", "mine")

    def answers(self, *answers: Answer) -> None:
        self._server.listen()
        in_background(lambda: [self._answer(each) for each in answers])

    def _answer(self, answer: Answer) -> None:
        with self._server.accept()[0] as connection:
            self.arrived.append(connection.recv(1 << 16).split()[0].decode())
            if answer is not None:
                head = f"HTTP/1.1 {answer[0]} X\r\nContent-Length: {len(answer[1])}\r\n\r\n"
                connection.sendall(head.encode() + answer[1])


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A queue that refuses connections until it has answers; the user's variables name a proxy."""
    monkeypatch.setattr("lab.backends.classroom.protocol._PAUSE_S", 0.01)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield Served(server)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_request_is_repeated_while_the_queue_is_started_again(
    served: Served, method: str
) -> None:
    served.answers(DOWN, None, DONE)
    assert served.client.request(bool, method)
    assert served.arrived == [method] * 3


def test_a_queue_that_stays_down(served: Served) -> None:
    with pytest.raises(LabError, match=r"does not answer: .*Connection refused; try again"):
        served.client.request(bool, "GET", patience_s=0.05)
    served.answers(DOWN)
    with pytest.raises(LabError, match="does not know the queue's answer 503"):
        served.client.request(bool, "GET", patience_s=0.0)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ((404, b'{"error": "none", "fix": "see it"}'), Gone, "none; see it"),
        ((500, b'{"error": "failed", "fix": ""}'), LabError, "failed"),
        ((500, b"<html>"), LabError, "does not know the queue's answer 500: .*; ask your teacher"),
        ((200, b'"yes"'), LabError, "does not know the queue's answer 200: Expected `bool`"),
        ((302, b"{}"), LabError, "does not know the queue's answer 302"),
    ],
)
def test_an_answer_that_is_an_error(
    served: Served, answer: Answer, error: type[LabError], message: str
) -> None:
    served.answers(answer)
    with pytest.raises(error, match=message):
        served.client.request(bool, "GET")
    assert served.arrived == ["GET"]
