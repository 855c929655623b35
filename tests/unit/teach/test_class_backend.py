"""How commands choose the queue of a class, and requests to it and to JupyterHub."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.backends.names import CLASS
from lab.backends.selection import choose
from lab.base.errors import InputError, LabError
from lab.base.threads import in_background
from lab.cluster.config import parse_cluster
from lab.cluster.placement.plan import Plan
from lab.runner.planning import make_plan, report_warnings
from lab.teach.classroom.backend import ClassBackend
from lab.teach.classroom.hub_api import HubApi, hub_api
from lab.teach.classroom.protocol import Gone, Queue
from tests.support.classes import a_plan
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment

LOCAL = FakeBackend("local")
QUEUE = FakeBackend(CLASS)
NO_SEAT = FakeBackend(CLASS, fault="this is no seat")
NO_TF = FakeBackend("local", fault="no TensorFlow")
UP = FakeBackend(CLASS, FakeEnvironment(Path()))
REQUEST_IT = "request it with `--backend class`"


@pytest.mark.parametrize(
    ("name", "known", "answer"),
    [
        ("auto", [LOCAL, QUEUE], "local: TensorFlow is installed here, and no task has a GPU"),
        (CLASS, [LOCAL, QUEUE], "class: as requested"),
        ("auto", [LOCAL, UP], "class: environment 'mnist' is up"),
        ("auto", [NO_TF, QUEUE], f"local: no TensorFlow, backend class: {REQUEST_IT}"),
        ("auto", [NO_TF, NO_SEAT], "local: no TensorFlow"),
        (CLASS, [LOCAL, NO_SEAT], "class: this is no seat"),
    ],
)
def test_auto_takes_no_place_in_the_queue(
    name: str, known: Sequence[Any], answer: str, root: Path, notices: list[str]
) -> None:
    try:
        choose(name, PLAN, root, known)
    except LabError as error:
        notices.append(str(error))
    assert notices == [f"backend {answer}"]


def test_the_plan_is_for_the_host_of_the_class(notices: list[str]) -> None:
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


def http(code: int, content: bytes = b"", head: str = "") -> bytes:
    return f"HTTP/1.1 {code} X\r\nContent-Length: {len(content)}\r\n{head}\r\n".encode() + content


DONE = http(200, b"true")
DOWN = http(503, b"down")


class Served:
    """A server that sends given answers, one a connection, and then closes the connection."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self.arrived: list[str] = []
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        self.client, self.hub = Queue(url, "secret"), HubApi(url, "secret")

    def answers(self, *answers: bytes) -> None:
        self._server.listen()
        in_background(lambda: [self._answer(each) for each in answers])

    def _answer(self, answer: bytes) -> None:
        with self._server.accept()[0] as connection:
            head, *_ = connection.recv(1 << 16).split(b" HTTP")
            self.arrived.append(head.decode())
            connection.sendall(answer)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server that refuses connections until it has answers; the user's variables name a proxy."""
    monkeypatch.setattr("lab.teach.classroom.protocol._PAUSE_S", 0.01)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield Served(server)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_request_is_repeated_while_the_queue_is_started_again(
    served: Served, method: str
) -> None:
    served.answers(DOWN, b"", DONE)
    assert served.client.request(bool, method)
    assert served.arrived == [f"{method} /environment"] * 3


def test_a_queue_that_stays_down(served: Served) -> None:
    with pytest.raises(LabError, match=r"does not answer: .*Connection refused; try again"):
        served.client.request(bool, "GET", patience_s=0.05)
    served.answers(DOWN)
    with pytest.raises(LabError, match="does not know the queue's answer 503"):
        served.client.request(bool, "GET", patience_s=0.0)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (http(404, b'{"error": "none", "fix": "see it"}'), Gone, "none; see it"),
        (http(500, b'{"error": "failed", "fix": ""}'), LabError, "failed"),
        (http(500, b"<html>"), LabError, "not know the queue's answer 500: .*; ask your teacher"),
        (http(200, b'"yes"'), LabError, "does not know the queue's answer 200: Expected `bool`"),
        (http(302, b"{}"), LabError, "does not know the queue's answer 302"),
    ],
)
def test_an_answer_that_is_an_error(
    served: Served, answer: bytes, error: type[LabError], message: str
) -> None:
    served.answers(answer)
    with pytest.raises(error, match=message):
        served.client.request(bool, "GET")
    assert served.arrived == ["GET /environment"]


def test_what_is_asked_of_jupyterhub(served: Served) -> None:
    users = [{"name": "ada", "servers": {"": {"ready": True}}}, {"name": "teacher", "servers": {}}]
    known, done = http(200, json.dumps(users).encode()), http(204)
    served.answers(known, known, done, done, done)
    assert served.hub.answers()
    assert served.hub.servers() == {"ada": {"ready": True}, "teacher": {}}
    served.hub.start("ada")
    served.hub.stop("ada")
    served.hub.restore_routes()
    assert served.arrived == [
        *("GET /", "GET /users", "POST /users/ada/server", "DELETE /users/ada/server"),
        "POST /proxy",
    ]
    assert hub_api(a_plan(), "x").url == "http://10.89.0.1:8081/hub/api"


LONG = json.dumps({"message": "ada is \x1b[2J pending stop " + "x" * 9_000}).encode()
NO_ANSWER = "JupyterHub does not answer at http"


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        *(
            (http(404, content), "JupyterHub refused: 404: ")
            for content in (b"", b"<html>", b"[]", b'{"message": null}', b'{"a": 1}', b"\xff")
        ),
        (
            http(404, LONG),
            r"""JupyterHub refused: 404: {"message": "ada is \u001b[2J pending stop xxx""",
        ),
        # A redirection is not followed.
        (http(302, head="Location: file:///etc/passwd\r\n"), "JupyterHub refused: "),
        (b"", NO_ANSWER),
        (b"\x1b[2J\r\n\r\n", NO_ANSWER),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[", NO_ANSWER),
        (http(200, b"no JSON"), NO_ANSWER),
        (None, NO_ANSWER),  # nothing listens
    ],
)
def test_a_refusal_of_jupyterhub_is_one_line_without_the_token(
    answer: bytes | None, line: str, served: Served
) -> None:
    if answer is not None:
        served.answers(answer, answer)
    assert not served.hub.answers()
    with pytest.raises(LabError) as caught:
        served.hub.start("ada")
    found = str(caught.value)
    assert found.startswith(line)
    assert found.isprintable()
    assert "secret" not in found
    assert len(found) < 300
    if line == NO_ANSWER:
        assert caught.value.fix == "start it with `lab class up`"
