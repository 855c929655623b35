"""Whether a program has talked to another task, with real processes and sockets."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from ipaddress import ip_address
from itertools import count
from types import SimpleNamespace

import pytest

from lab.task.agent import connections
from lab.task.agent.connections import Connection, Contact

Program = Callable[[str], int]

CONNECTS = "kept = socket.create_connection(('127.0.0.1', {port})); kept.recv(1)"
TALKS_TO_ITSELF = """
server = socket.create_server(("127.0.0.1", 0))
kept = server, socket.create_connection(server.getsockname()), server.accept()
"""
SENDS_UDP = "kept = socket.socket(type=socket.SOCK_DGRAM); kept.bind(('127.0.0.1', 0))"
SHARES_MEMORY = """
from multiprocessing.shared_memory import SharedMemory
kept = SharedMemory(create=True, size=4096)
"""
HIDES_MEMORY = f"{SHARES_MEMORY}\nkept.unlink()"


@pytest.fixture
def program() -> Iterator[Program]:
    """Starts programs, which stay until the end of the test after they have done something."""
    with ExitStack() as stack:

        def start(source: str) -> int:
            lines = f"import socket, signal\n{source}\nprint('done', flush=True)\nsignal.pause()"
            process = subprocess.Popen([sys.executable, "-c", lines], stdout=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout.readline() == b"done\n"
            return process.pid

        yield start


@pytest.fixture
def port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server, ThreadPoolExecutor(1) as pool:

        def accept() -> socket.socket:
            connection, _ = server.accept()
            connection.send(b"x")
            return connection

        accepted = pool.submit(accept)
        yield server.getsockname()[1]
        accepted.result(60).close()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a minute."""
    seconds = count(step=60)
    monkeypatch.setattr(
        connections, "time", SimpleNamespace(monotonic=lambda: float(next(seconds)))
    )


def a_contact(*others: str) -> Contact:
    return Contact("127.0.0.1:2222", others)


def looked(contact: Contact, pid: int, others: tuple[int, ...] = (), times: int = 3) -> bool | None:
    contact.begin(pid)
    for _ in range(times):
        contact.look(others)
    return contact.talked


def test_a_connection_to_a_task_of_the_same_node_counts(program: Program, port: int) -> None:
    pid = program(CONNECTS.format(port=port))
    assert looked(a_contact(), pid, (os.getpid(),), times=1) is True


def test_a_connection_to_a_process_that_is_no_task_leaves_it_open(
    program: Program, port: int
) -> None:
    assert looked(a_contact(), program(CONNECTS.format(port=port))) is None


def test_a_program_that_talks_to_itself_has_not_talked(program: Program) -> None:
    pid = program(TALKS_TO_ITSELF)
    assert looked(a_contact(), pid, times=2) is None  # a short connection may be missed
    assert looked(a_contact(), pid) is False


def test_connections_of_a_launcher_do_not_count(program: Program, port: int) -> None:
    contact = a_contact()
    contact.begin(program(CONNECTS.format(port=port)), is_launched=True)
    for _ in range(3):
        contact.look([os.getpid()])
    assert contact.talked is False


def test_connections_to_a_service_of_the_agents_do_not_count(program: Program, port: int) -> None:
    contact = a_contact()
    contact.begin(program(CONNECTS.format(port=port)), ignored_port=port)
    for _ in range(3):
        contact.look([os.getpid()])
    assert contact.talked is False


@pytest.mark.parametrize(
    ("source", "answer"), [(SENDS_UDP, None), (SHARES_MEMORY, None), (HIDES_MEMORY, False)]
)
def test_ways_that_the_list_does_not_show(
    program: Program, source: str, answer: bool | None
) -> None:
    assert looked(a_contact(), program(source)) is answer


@pytest.mark.parametrize(
    ("remote", "answer"),
    [
        ("10.77.0.2", True),  # another task
        ("10.78.0.2", None),  # a second network of its node
        ("93.184.215.14", False),  # the Internet
    ],
)
def test_the_address_of_the_other_end_decides(
    remote: str, answer: bool | None, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = program("kept = socket.socket()")
    (inode,) = connections._sockets([pid])
    connection = Connection((ip_address("10.77.0.1"), 4000), (ip_address(remote), 5000), inode)
    monkeypatch.setattr(connections, "connections", lambda: [connection])
    assert looked(a_contact("10.77.0.2:2222"), pid) is answer


@pytest.mark.parametrize(
    ("remote", "port", "answer"),
    [
        ("10.77.0.2", 5000, True),
        ("127.0.0.1", 2222, None),  # the port of a task
        ("127.0.0.1", 5000, False),
        ("93.184.215.14", 2222, False),
    ],
)
def test_a_connection_that_is_closed_between_two_looks_counts(
    remote: str, port: int, answer: bool | None, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    contact = a_contact("10.77.0.2:2222")
    assert looked(contact, program("pass")) is False
    closed = Connection((ip_address("10.77.0.1"), 4000), (ip_address(remote), port), 0)
    monkeypatch.setattr(connections, "connections", lambda: [closed])
    contact.end()
    assert contact.talked is answer


def test_a_name_server_that_does_not_answer_delays_nothing(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: silent.wait() and [])
    contact = a_contact("tf2:2222")
    assert looked(contact, program("pass")) is False
    closed = Connection((ip_address("10.77.0.1"), 4000), (ip_address("10.77.0.2"), 5000), 0)
    monkeypatch.setattr(connections, "connections", lambda: [closed])
    contact.end()
    assert contact.talked is None  # this may be the address of tf2
    silent.set()


def test_connections_that_were_closed_before_the_start_do_not_count(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = Connection((ip_address("10.77.0.1"), 4000), (ip_address("10.77.0.2"), 5000), 0)
    monkeypatch.setattr(connections, "connections", lambda: [closed])
    contact = a_contact("10.77.0.2:2222")
    looked(contact, program("pass"))
    contact.end()
    assert contact.talked is False


def test_the_answer_outlives_the_attempt_and_the_agent(program: Program) -> None:
    contact = Contact("127.0.0.1:2222", (), talked=True)
    assert looked(contact, program("pass")) is True


def test_an_address_of_ipv4_in_a_socket_of_ipv6_is_one_of_ipv4() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            with accepted:
                here = (ip_address("127.0.0.1"), port)
                found = [each for each in connections.connections() if each.local == here]
    assert [each.remote[0] for each in found] == [ip_address("127.0.0.1")]


def test_a_program_that_ends_during_a_look_has_no_connection(program: Program) -> None:
    pid = program("pass")
    os.kill(pid, signal.SIGKILL)
    assert looked(a_contact(), pid) is False


@pytest.mark.parametrize(("age_s", "looks"), [(1.0, 2), (10.0, 2), (1000.0, 1)])
def test_a_program_that_imports_for_long_is_still_looked_at_often(
    age_s: float, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, looked = 0.0, []
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(connections, "family", lambda _: looked.append(now) or {})
    contact = Contact("127.0.0.1:2222", ())
    contact.begin(0)
    for now in (age_s, age_s + 0.2):  # noqa: B007 (the clock reads it)
        contact.look()
    assert len(looked) == looks
