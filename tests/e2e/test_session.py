"""The programs' session against a real server, with refusals as TensorFlow words them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.tensorflow

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
MISTAKE = "From /job:ps/replica:0/task:0:\nThe same RunGraph (Worker) request was received twice."
CANCELLED = f"""
=====================
CANCELLED: From /job:worker/replica:0/task:0:
RecvFromRemoteAsync is cancelled.
ABORTED: {MISTAKE} goo.gle/debugproto    graph_handle: "0000000000000006"
====================="""
QUOTED = """Graph handle is not found
Recent warning and error logs:
  W0000 00:00:1.2 401 x.cc:1] The same RunGraph (Worker) request was received twice."""


class Told:
    """Replaces the recorder."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def write(self, kind: str, *, message: str) -> None:
        self.lines.append((kind, message))


@pytest.fixture(scope="module")
def session_module() -> Any:
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("session")
    finally:
        sys.path.remove(str(SCRIPTS))
        del sys.modules["session"]


@pytest.fixture
def counting(session_module: Any) -> Any:
    """A session on a real server, and an operation that adds one to a variable."""
    tf = session_module.tf
    with tf.Graph().as_default():
        server = tf.train.Server.create_local_server()
        counter = tf.get_variable("counter", initializer=0, use_resource=True)
        add = counter.assign_add(1)
        told = Told()
        with session_module.Session(server.target, told, None) as session:
            session.run(tf.global_variables_initializer())
            yield session, add, told


def refuse(
    monkeypatch: pytest.MonkeyPatch, tf: Any, kind: str, words: str, calls: set[int]
) -> None:
    """Let the calls of these numbers fail as TensorFlow does, before anything has run."""
    real, count = tf.Session.run, 0
    error = getattr(tf.errors, kind)

    def run(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count in calls:
            raise error(None, None, words)
        return real(self, *args, **options)

    monkeypatch.setattr(tf.Session, "run", run)


@pytest.mark.parametrize(
    ("kind", "words"), [("AbortedError", MISTAKE), ("CancelledError", CANCELLED)]
)
def test_a_refused_step_runs_once_more_and_is_recorded(
    counting: Any, session_module: Any, monkeypatch: pytest.MonkeyPatch, kind: str, words: str
) -> None:
    session, add, told = counting
    refuse(monkeypatch, session_module.tf, kind, words, {2, 4, 5})
    assert [int(session.run(add)) for _ in range(4)] == [1, 2, 3, 4]
    assert [kind for kind, _ in told.lines] == ["event"] * 3


NOT_FOUND = "Graph handle is not found"
TENSOR = "The same RecvTensor (GrpcWorker) request was received twice. Graph handle 7"
"""Part of the step may be done."""


@pytest.mark.parametrize("words", [NOT_FOUND, QUOTED, TENSOR])
def test_any_other_abortion_is_an_error(
    counting: Any, session_module: Any, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    session, add, told = counting
    refuse(monkeypatch, session_module.tf, "AbortedError", words, {1})
    with pytest.raises(session_module.tf.errors.AbortedError, match="Graph handle"):
        session.run(add)
    assert told.lines == []


def test_the_roll_call_is_on_every_device(session_module: Any) -> None:
    tf = session_module.tf
    devices = ["/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:2"]
    with tf.Graph().as_default():
        assert [one.device for one in session_module.roll_call(devices)] == devices
