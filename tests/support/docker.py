"""Docker's command line, on the engine of the tests."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.backends.compose.environment import ComposeEnvironment
from lab.cluster.config import load_cluster
from lab.cluster.gpu import Gpu, Inventory, take_inventory
from lab.cluster.placement.place import place
from lab.cluster.placement.plan import Plan
from tests.support.agents import wait_for

HOST = """
import socket, threading
from pyroute2 import IPRoute
with IPRoute() as netlink:
    found = {each.get("address") or each.get("local") for each in netlink.get_addr()}
listener = socket.socket(socket.AF_INET6)
listener.bind(("::", 0))
listener.listen(128)
print(listener.getsockname()[1], *found, "ready", flush=True)
while True:
    listener.accept()[0].close()
"""
"""Listens on all addresses of the engine's host, and prints its port and these addresses."""
CONNECT = """
import contextlib, errno, select, socket, sys
waiting = {}
for word in sys.argv[1:]:
    host, _, port = word.rpartition(":")
    six = ":" in host
    scope = socket.if_nametoindex("eth0") if host.startswith("fe80") else 0
    to = (host, int(port), 0, scope) if six else (host, int(port))
    for bound in (False, True):
        each = socket.socket(socket.AF_INET6 if six else socket.AF_INET)
        each.setblocking(False)
        if bound:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
        with contextlib.suppress(OSError):
            if each.connect_ex(to) in {0, errno.EINPROGRESS}:
                waiting[each] = word
while waiting and (ready := select.select([], list(waiting), [], 2)[1]):
    for each in ready:
        if each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
            print(waiting[each])
        del waiting[each]
"""
"""Prints the addresses HOST:PORT that accept a connection, also from sockets that ignore routes."""
DESCRIPTION = """\
version: 1
name: {name}
box: {{gpus: 4}}
nodes:
  tf1: {{gpus: 2}}
  tf2: {{gpus: 2}}
jobs:
  ps: {{on: [tf1], gpus: 0}}
  worker: {{on: [tf1, tf2], gpus: 1}}
port: 2222
"""
NAME = "lab-e2e"


def place_on(folder: Path, mode: str, *, name: str = NAME) -> Plan:
    path = folder / "cluster.yaml"
    path.write_text(DESCRIPTION.format(name=name))
    cluster = load_cluster(path)
    if mode == "uuid":
        gpus = tuple(Gpu(index, f"GPU-{index}", memory_bytes=2**34) for index in range(4))
        return place(cluster, Inventory("uuid", gpus, 2, 2**34))
    return place(cluster, take_inventory(mode, cluster))


def docker(*arguments: str) -> str:
    return subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def reached(container: str, *addresses: str) -> set[str]:
    """The addresses, HOST:PORT, that a container reaches."""
    return set(docker("exec", container, "python", "-c", CONNECT, *addresses).split())


@contextmanager
def listening_host(image: str) -> Iterator[list[str]]:
    """A port on which the engine's host listens, at each of its addresses but the loopback's."""
    listener = docker("run", "--detach", "--network", "host", image, "python", "-c", HOST)
    try:
        wait_for(lambda: docker("logs", listener).endswith("ready"), "the listener on the host")
        port, *addresses, _ = docker("logs", listener).split()
        inner = {each for each in addresses if each.startswith("127.") or each == "::1"}
        yield [f"{each}:{port}" for each in addresses if each not in inner]
    finally:
        docker("rm", "--force", listener)


def reached_by_worker(project: str, *addresses: str) -> set[str]:
    """The addresses that worker-1 reaches; it must reach ps-0 on the other node."""
    server = "import socket, time; s = socket.create_server(('', 2222)); time.sleep(600)"
    docker("exec", "--detach", f"{project}-ps-0-1", "python", "-c", server)
    found: set[str] = set()

    def serves() -> bool:
        found.update(reached(f"{project}-worker-1-1", "tf1:2222", *addresses))
        return "tf1:2222" in found

    wait_for(serves, "ps-0 is reached")
    return found - {"tf1:2222"}


def inspect(environment: ComposeEnvironment) -> dict[str, dict[str, Any]]:
    ids = [each.id for each in environment.inspect()]
    found = json.loads(docker("inspect", *ids))
    return {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in found}


def left_behind(name: str = NAME) -> list[str]:
    """Everything of a project that the engine still has, by lab's label and by compose's."""
    found = []
    for label in (f"lab.project={name}", f"com.docker.compose.project={name}"):
        for what in (["ps", "--all"], ["network", "ls"], ["volume", "ls"]):
            found += docker(*what, "--quiet", "--filter", f"label={label}").split()
    return found


class Output:
    """The output of a command, as docker-py sends it; `silent` commands do not end."""

    def __init__(self, *pieces: bytes, silent: bool = False) -> None:
        self._pieces = iter(pieces)
        self._is_closed = None if not silent else threading.Event()

    def __iter__(self) -> Iterator[tuple[bytes, None]]:
        yield from ((piece, None) for piece in self._pieces)
        if self._is_closed is not None:
            assert self._is_closed.wait(20), "nobody ends the command"

    def close(self) -> None:
        if self._is_closed is not None:
            self._is_closed.set()
