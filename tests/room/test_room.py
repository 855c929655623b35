"""A room without network: a namespace with only loopback, and an engine without data."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support import engine as engines
from tests.support.commands import run_command
from tests.support.conditions import lacking

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2700)]

PATIENCE_S = 900.0
LOOPBACK = """
from pyroute2 import IPRoute
with IPRoute() as netlink:
    print([link.get_attr("IFLA_IFNAME") for link in netlink.get_links()], flush=True)
    netlink.link("set", index=netlink.link_lookup(ifname="lo")[0], state="up")
print("up", flush=True)
input()
"""
"""Prints the devices of a new namespace, sets up its loopback, and holds it for a line of input."""

CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10).close()
except OSError as error:
    print(type(error).__name__, error)
else:
    print("connected")
"""


def output(command: list[str | Path], cwd: Path, environment: dict[str, str]) -> str:
    done = run_command(command, cwd=cwd, env=environment, timeout=PATIENCE_S)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@dataclass(frozen=True)
class Room:
    """A host without a network."""

    folder: Path
    namespace: Path
    environment: dict[str, str]

    def run(self, *command: str | Path) -> str:
        """The output of a command in the namespace."""
        inside = ["nsenter", f"--net={self.namespace}", *command]
        return output(inside, self.folder, self.environment)


@pytest.fixture(scope="module")
def office(image: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project on a host with a network, and the archive for the room: room.tar."""
    folder = tmp_path_factory.mktemp("office")
    init = [sys.executable, "-m", "lab", "init", "--gpus", "none"]
    output(init, folder, {**os.environ})
    script = engines.ROOT / "tools/offline.py"
    pack = [sys.executable, script, "pack", "room.tar", "--image", image, "."]
    output(pack, folder, {**os.environ})
    return folder


@pytest.fixture(scope="module")
def namespace() -> Iterator[Path]:
    """A network namespace in which there is only loopback."""
    if os.geteuid() != 0:
        lacking("only root may make a network namespace")
    with subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", LOOPBACK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "['lo']\n"
        assert holder.stdout.readline() == "up\n"
        yield Path(f"/proc/{holder.pid}/ns/net")
        holder.communicate("\n")


@pytest.fixture(scope="module")
def room(office: Path, namespace: Path) -> Iterator[Room]:
    """The room, after the installation; its engine had no data."""
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="lab-room-", dir="/var/tmp"))
        stack.callback(engines.wipe, home)
        python = Path(sys.base_prefix) / "bin"
        environment = {
            "PATH": f"{python}:{engines.system_path()}",
            "HOME": str(home),
            "DOCKER_HOST": f"unix://{home}/docker.sock",
            "DOCKER_CONFIG": os.environ["DOCKER_CONFIG"],
            "LAB_GPU_RECORD": str(home / "gpus"),
        }
        inside = ("nsenter", f"--net={namespace}")
        stack.callback(engines.stop, engines.start(home, environment, *inside))
        images = ["docker", "image", "ls", "--quiet"]
        assert subprocess.check_output(images, env=environment) == b""
        folder = home / "course"
        folder.mkdir()
        room = Room(folder, namespace, environment)
        room.run("tar", "-xf", office / "room.tar", "offline.py")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        room.run(python / version, "offline.py", "install", office / "room.tar")
        yield room


def test_there_is_no_way_out(room: Room, image: str) -> None:
    """The host has an address at which it listens: it is reached from itself, not from the room."""
    addresses = (
        each.address
        for several in psutil.net_if_addrs().values()
        for each in several
        if each.family == socket.AF_INET and not each.address.startswith("127.")
    )
    address = next(addresses, None) or lacking("this host has only loopback itself")
    with socket.create_server(("", 0)) as listener:
        to = [address, str(listener.getsockname()[1])]
        outside = [sys.executable, "-c", CONNECT, *to]
        assert subprocess.check_output(outside, text=True) == "connected\n"
        from_room = room.run(room.folder / ".venv/bin/python", "-c", CONNECT, *to)
        assert "Network is unreachable" in from_room
        container = ["docker", "run", "--rm", image, "python", "-c", CONNECT, *to]
        assert "Network is unreachable" in room.run(*container)
    for target in ("pypi.org", "registry-1.docker.io"):
        python = [room.folder / ".venv/bin/python", "-c", CONNECT, target, "443"]
        assert "gaierror" in room.run(*python)


def test_the_room_trains(room: Room) -> None:
    words = ["run", "async", "--backend", "compose", "--gpus", "none", "--epochs", "1", "--json"]
    printed = room.run(room.folder / ".venv/bin/lab", *words)
    summary = json.loads(printed.splitlines()[-1])
    assert (summary["state"], summary["records_lost"]) == ("succeeded", 0)
    assert (room.folder / "runs" / summary["run_id"] / "summary.json").is_file()
