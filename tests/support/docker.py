"""Docker's command line, on the engine of the tests."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from lab.backends.compose import ComposeEnvironment
from lab.config import load_cluster
from lab.gpu import Gpu, Inventory, take_inventory
from lab.placement.place import place
from lab.placement.plan import Plan

HOST = """
import socket, threading
from pyroute2 import IPRoute
with IPRoute() as netlink:
    found = {each.get("address") or each.get("local") for each in netlink.get_addr()}
listener = socket.socket(socket.AF_INET6)
listener.bind(("::", 0))
listener.listen(128)
print(listener.getsockname()[1], *found, flush=True)
while True:
    listener.accept()[0].close()
"""
"""Listens on all addresses of the engine's host, and prints its port and these addresses."""
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


def inspect(environment: ComposeEnvironment) -> dict[str, dict[str, Any]]:
    """The engine's inspection of each container, by service."""
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


def no_word(line: str) -> None:
    """Progress that is not shown."""


def docker_output(container: str) -> str:
    return subprocess.run(
        ["docker", "logs", container], capture_output=True, text=True, check=True
    ).stdout
