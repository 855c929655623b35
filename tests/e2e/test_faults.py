"""Faults of networks between real pseudo-nodes, and faults of real runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.local.backend import LocalBackend
from lab.backends.local.environment import LocalEnvironment
from lab.base.errors import LabError
from lab.cli import main
from lab.cluster.placement.plan import Plan, PlannedNode, PlannedTask
from tests.support.agents import PATIENCE_S, processes_with, wait_for
from tests.support.commands import free_port
from tests.support.conditions import needs_namespaces
from tests.support.docker import docker, left_behind, place_on

LISTEN = """
import socket
server = socket.create_server(("0.0.0.0", 7777))
while True:
    peer, _ = server.accept()
    while data := peer.recv(100):
        peer.sendall(data)
"""
"""On tf2: an echo server."""

ASK = """
import socket, sys, time
while True:
    try:
        link = socket.create_connection((sys.argv[1], 7777), timeout=5)
        break
    except OSError:
        time.sleep(0.1)
link.settimeout(None)
began = time.monotonic()
longest = 0.0
while time.monotonic() - began < float(sys.argv[2]):
    asked = time.monotonic()
    link.sendall(b"x")
    assert link.recv(1) == b"x"
    longest = max(longest, time.monotonic() - asked)
    if asked - began < 0.5:
        print("up", flush=True)
    time.sleep(0.02)
print("longest", longest, flush=True)
"""
"""On tf1: sends over one connection for some seconds, and prints the longest delay of an answer."""


@contextmanager
def talking(listen: Sequence[str], ask: Sequence[str]) -> Iterator[Callable[[], float]]:
    """Connect tf2 and tf1; yield a function that ends both and returns the longest delay in s."""
    with (
        subprocess.Popen([*listen, LISTEN], stdin=subprocess.DEVNULL) as server,
        subprocess.Popen([*ask, ASK, "tf2", "5"], stdout=subprocess.PIPE, text=True) as client,
    ):
        output = client.stdout
        try:
            assert output.readline() == "up\n"
            yield lambda: float(output.read().split()[-1])
            assert client.wait(PATIENCE_S) == 0
        finally:
            server.kill()
            client.kill()


CUT: Final = ("cut:2s",)
SILENT_S: Final = 1.9


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEnvironment]:
    needs_namespaces()
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAB_TEST_MARKER", str(tmp_path))
    (tmp_path / "scripts").mkdir()
    port = free_port()
    plan = Plan(
        name="faulty",
        mode="none",
        cluster_sha256="0" * 64,
        nodes=(PlannedNode("tf1"), PlannedNode("tf2")),
        tasks=(PlannedTask("ps", 0, "tf1", port), PlannedTask("worker", 0, "tf2", port)),
    )
    environment = LocalBackend().up(plan, root=tmp_path)
    assert isinstance(environment, LocalEnvironment)
    yield environment
    if environment.is_up:
        environment.down()
    wait_for(lambda: not processes_with(f"LAB_TEST_MARKER={tmp_path}\0"), "nothing is left")


def on(environment: LocalEnvironment, task: str) -> list[str]:
    """The command line that runs Python code on a task's node."""
    return [*environment.shell(task)[:-4], sys.executable, "-c"]


def test_pseudo_nodes_are_cut_and_restored(local: LocalEnvironment) -> None:
    with talking(on(local, "worker-0"), on(local, "ps-0")) as longest_s:
        local.inject_network_fault("tf2", CUT)
        assert longest_s() > SILENT_S
    # An active fault ends with its environment.
    local.inject_network_fault("tf2", ["cut:60s"])
    with pytest.raises(LabError, match="node tf2: another network fault is active on this node"):
        local.inject_network_fault("tf2", ["cut:60s"])
    local.inject_network_fault("tf1", ["link:rate=1mbit,60s"])
    local.down()


PROGRAM = """
import json, os, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
def record(kind, **fields):
    pairs = " ".join(f"{name}={value}" for name, value in fields.items())
    print(f"lab kind={kind} job_name={task['type']} task_index={task['index']} {pairs}".rstrip())
    sys.stdout.flush()
record("start")
if task["type"] == "ps":
    time.sleep(600)
for step in range(1, 10**6):  # for hours: only a fault ends it
    record("step", local_step=step, global_step=step)
    time.sleep(0.02)
"""

DESCRIPTION = """
version: 1
name: faulty-run
nodes: {tf1: {}, tf2: {}, tf3: {}}
jobs:
  ps: {on: [tf1]}
  worker: {on: [tf2, tf3]}
"""


def events(run: Path, task: str) -> list[tuple[str, float]]:
    """The faults in a task's records, each with its time in s."""
    lines = (run / "tasks" / f"{task}.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [
        (each["message"], each["time_unix"])
        for each in records
        if each["kind"] == "event" and each["message"].startswith("fault")
    ]


def test_faults_of_a_run_start_in_time_and_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_namespaces()
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "cluster.yaml").write_text(DESCRIPTION)
    pause, cut, kill = (
        "pause:2s worker-1 after 50 steps",
        "cut:1s tf2 after 100 steps",
        "kill worker-0 after 250 steps",
    )
    arguments = ["run", "program.py", "--backend", "local", "--gpus", "none"]
    assert main([*arguments, "--fault", f"{pause}; {cut}; {kill}"]) == 1
    (run,) = (tmp_path / "runs").iterdir()
    told = json.loads((run / "run.json").read_text())
    assert (told["state"], told["spec"]["faults"]) == ("failed", [pause, cut, kill])
    assert told["reason"].startswith("worker-0 failed: killed by SIGKILL")
    (begun, began), (over, ended) = events(run, "worker-1")
    assert (begun, over) == (f"fault: {pause}", f"fault over: {pause}")
    assert ended - began > 1.9
    assert [line for line, _ in events(run, "worker-0")] == [
        f"fault: {cut}",
        f"fault over: {cut}",
        f"fault: {kill}",
    ]
    assert events(run, "ps-0") == []


@pytest.fixture
def containers(image: str, root: Path) -> Iterator[ComposeEnvironment]:
    plan = place_on(root, "none", name="lab-faults")
    environment = ComposeBackend().up(plan, root=root)
    yield environment
    environment.down()
    assert left_behind("lab-faults") == []


def faults() -> list[str]:
    return docker("ps", "--all", "--quiet", "--filter", "label=lab.fault").split()


@pytest.mark.engine
def test_containers_are_cut_and_restored(containers: ComposeEnvironment) -> None:
    listen = ["docker", "exec", "lab-faults-worker-1-1", "python", "-c"]
    ask = ["docker", "exec", "lab-faults-ps-0-1", "python", "-c"]
    known = [each.service for each in containers.inspect()]
    with talking(listen, ask) as longest_s:
        containers.inject_network_fault("tf2", CUT)
        assert longest_s() > SILENT_S
    wait_for(lambda: not faults(), "the container that did it has gone")
    # The container that injects a fault is no part of the environment, and changes nothing of it.
    containers.inject_network_fault("tf1", ["link:rate=1mbit,60s"])
    (link,) = faults()
    assert [each.service for each in containers.inspect()] == known
    assert all(task.alive for task in containers.tasks())
    with pytest.raises(LabError, match="node tf1: another network fault is active on this node"):
        containers.inject_network_fault("tf1", ["cut:60s"])
    (options,) = json.loads(docker("inspect", link))
    assert options["HostConfig"]["CapDrop"] == ["ALL"]
