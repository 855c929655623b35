"""The agent's side of a fork server, and the agents that have one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from lab.backends.local import supervisor as local
from lab.backends.local.state import EnvironmentRecord, TaskRecord
from lab.backends.local.state import StateDir as LocalPlace
from lab.backends.process import ProcessHandle
from lab.protocol.volume import Request, RunSpec
from lab.task.agent import program
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.fork_client import ForkClient, ForkRefused
from lab.task.agent.forkserver import receive, send
from lab.task.agent.program import ProgramStarter
from tests.support.local import a_record

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ends = socket.socketpair(type=socket.SOCK_SEQPACKET)
    yield ends
    for end in ends:
        end.close()


def test_a_message_carries_its_descriptor(pair: Pair) -> None:
    reading, writing = os.pipe()
    send(pair[0], {"word": "ä" * 20_000}, writing)
    os.close(writing)
    message, descriptor = receive(pair[1])
    assert message == {"word": "ä" * 20_000}
    assert descriptor is not None
    os.write(descriptor, b"x")
    assert os.read(reading, 9) == b"x"
    os.close(descriptor)
    os.close(reading)


@pytest.mark.parametrize("output", [b"", b"{"])
def test_a_partial_or_invalid_message_closes_the_connection(pair: Pair, output: bytes) -> None:
    pair[0].send(output)
    pair[0].close()
    with pytest.raises(ConnectionError):
        receive(pair[1])


def test_a_closed_fork_server_refuses(pair: Pair, tmp_path: Path) -> None:
    cradle = ForkClient(pair[0])
    assert not cradle.is_settled()
    assert cradle.wake_fds == (pair[0].fileno(),)
    send(pair[1], {"reason": None})
    assert cradle.is_settled()
    assert (cradle.wake_fds, cradle.unavailable_reason) == ((), None)
    pair[1].close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2):
        with pytest.raises(ForkRefused, match="the fork server has ended"):
            cradle.spawn(["python"], {}, tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 1  # its own end


def test_a_refusal_names_its_reason(pair: Pair, tmp_path: Path) -> None:
    cradle = ForkClient(pair[0])
    with pytest.raises(ForkRefused, match="the import is still running"):
        cradle.spawn(["python"], {}, tmp_path)
    send(pair[1], {"reason": None})
    send(pair[1], {"reason": "it has another A"})
    assert cradle.is_settled()
    with pytest.raises(ForkRefused, match="it has another A"):
        cradle.spawn(["python"], {}, tmp_path)
    assert cradle.unavailable_reason is None  # another program may be forked


def a_starter(root: Path, pair: Pair, gpus: str = "none", **more: bool) -> ProgramStarter:
    cluster = {"worker": ["n:1"]}
    paths = {"runs": root, "scripts": root, "data": root}
    config = AgentConfig("p", "n", "worker-0", cluster, **paths, gpus=gpus)
    request = Request("r1", RunSpec("x", "program.py", **more), cluster)
    return ProgramStarter(config, request, Mock(), ForkClient(pair[0]), lambda: None)


def test_a_program_waits_for_the_import_with_a_limit(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text("import tensorflow\n")
    now = 0.0
    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: now))
    starter = a_starter(tmp_path, pair)
    assert not starter.is_ready()
    now = 59.0
    assert not starter.is_ready()
    now = 61.0
    assert starter.is_ready()
    assert hung_up(pair[1])


def hung_up(end: socket.socket) -> bool:
    try:
        receive(end)
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize(
    ("more", "gpus", "why_not"),
    [
        ({"own": True}, "none", "a user's own program imports TensorFlow itself"),
        ({}, "GPU-1", "it uses GPUs"),
        ({}, "none", None),
    ],
)
def test_not_forked(
    pair: Pair, tmp_path: Path, more: dict[str, bool], gpus: str, why_not: str | None
) -> None:
    (tmp_path / "program.py").write_text("import tensorflow\n")
    starter = a_starter(tmp_path, pair, gpus, **more)
    assert starter.no_fork_reason() == why_not
    assert starter.is_ready() is (why_not is not None)


def record(*gpus: tuple[str, ...], runtime: str = "tensorflow") -> EnvironmentRecord:
    tasks = tuple(
        TaskRecord(f"worker-{index}", "n", "n:1", each, None, {"A": "1", "B": str(index)})
        for index, each in enumerate(gpus)
    )
    return a_record(
        process=ProcessHandle(1, "", ""),
        interpreter="/bin/true",
        tasks=tasks,
        runtime=runtime,
    )


@pytest.mark.parametrize(
    ("gpus", "runtime", "switch", "tasks"),
    [
        (((), ("GPU-1",), ()), "tensorflow", "fork", ["worker-0", "worker-2"]),
        ((("GPU-1",),), "tensorflow", "fork", []),
        (((),), "tensorflow-2.15", "fork", []),
        (((),), "tensorflow", "namespaces", []),
    ],
)
def test_fork_servers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpus: tuple[tuple[str, ...], ...],
    runtime: str,
    switch: str,
    tasks: list[str],
) -> None:
    monkeypatch.setenv("LAB_LOCAL", switch)
    where = LocalPlace(tmp_path)
    where.output("x").parent.mkdir()
    opened = local.start_forkserver(record(*gpus, runtime=runtime), where)
    assert sorted(opened.ends) == tasks
    assert (opened.pid is not None) is bool(tasks)
    if opened.pid is not None:
        os.waitpid(opened.pid, 0)
    for task in tasks:
        opened.ends[task].close()
    assert all(end.fileno() == -1 for end in opened.ends.values())
