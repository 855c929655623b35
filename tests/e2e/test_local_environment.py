"""Environments on the local backend, with tiny programs instead of TensorFlow."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.local.backend import LocalBackend
from lab.backends.local.environment import LocalEnvironment
from lab.backends.process import ProcessHandle
from lab.backends.python import base_environ
from lab.base.errors import InputError, LabError
from lab.base.image_digest import digest
from lab.base.log import shown_by
from lab.cluster.placement.plan import Link, Plan, PlannedNode, PlannedTask
from lab.protocol.volume import Request, RunSpec
from lab.protocol.volume.states import State
from tests.support.agents import PATIENCE_S, ROOT, processes_with, wait_for
from tests.support.commands import free_port, lab
from tests.support.conditions import needs_namespaces
from tests.support.experiments import LOCAL
from tests.support.volumes import collected, states

PROGRAM = """
import os, socket, subprocess, sys, time
flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
job, index = flags["job_name"], flags["task_index"]
def record(kind, **fields):
    pairs = " ".join(f"{name}={value}" for name, value in fields.items())
    print(f"lab kind={kind} job_name={job} task_index={index} {pairs}".rstrip(), flush=True)
def address(of, position):
    host, port = flags[of + "_hosts"].split(",")[position].rsplit(":", 1)
    return host, int(port)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("", address(job, int(index))[1]))
listener.listen()
record("start")
print("on", socket.gethostname(), address(job, int(index)), os.environ["CUDA_VISIBLE_DEVICES"])
if job == "ps":
    while True:
        peer, _ = listener.accept()
        peer.sendall(b"parameters")
        peer.close()
while True:
    try:
        link = socket.create_connection(address("ps", 0), timeout=60)
        break
    except ConnectionRefusedError:
        time.sleep(0.02)
assert link.recv(100) == b"parameters"
record("step", local_step=1)
mode = flags.get("mode", "")
if mode == "forever" or mode == "fail" and index == "0":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(9e7)"], start_new_session=True)
    time.sleep(9e7)
if mode == "fail":
    sys.exit("\\x1b[31merror: worker 1 gives up")
"""


def plan(name: str = "demo", port: int = 2222) -> Plan:
    return Plan(
        name=name,
        mode="index",
        cluster_sha256="0" * 64,
        nodes=(PlannedNode("tf1"), PlannedNode("tf2", link=Link(rate_bits=10**9))),
        tasks=(
            PlannedTask("ps", 0, "tf1", port),
            PlannedTask("worker", 0, "tf2", port, gpus=("0", "1"), cpuset="0"),
            PlannedTask("worker", 1, "tf1", port + 1),
        ),
    )


@pytest.fixture
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How tasks are separated: by namespaces, if a test does not want processes."""
    found = str(getattr(request, "param", "namespaces"))
    if found == "processes":
        monkeypatch.setenv("LAB_LOCAL", "fork")
    else:
        needs_namespaces()
    return found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project's directory; at the end the test checks that nothing is left."""
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAB_TEST_MARKER", str(tmp_path))
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "program.py").write_text(PROGRAM)
    yield tmp_path
    for environment in LocalBackend().all():
        environment.down()
    wait_for(lambda: not left(tmp_path), "nothing is left")


def left(project: Path) -> list[int]:
    return processes_with(f"LAB_TEST_MARKER={project}\0")


def up(project: Path, **changes: object) -> LocalEnvironment:
    output: list[str] = []
    wanted = replace(plan(port=free_port()), **changes)
    with shown_by(output.append):
        booted = LocalBackend().up(wanted, root=project)
    assert "booted 3 tasks" in output[-1]
    return booted


def submit(environment: LocalEnvironment, mode: str, run_id: str = "r1") -> Request:
    args = (f"--mode={mode}",)
    request = Request(run_id, RunSpec("t", "program.py", args), environment.cluster_spec())
    environment.submit(request)
    return request


def train(environment: LocalEnvironment, run_id: str = "r1") -> None:
    submit(environment, "forever", run_id)
    expected = {"worker-0": State.TRAINING, "worker-1": State.TRAINING}

    def trained() -> bool:
        now = states(collected(environment, run_id, follow=False))
        return expected.items() <= now.items()

    wait_for(trained, "workers train")


@pytest.mark.parametrize("kind", ["namespaces", "processes"], indirect=True)
def test_run_from_boot_to_removal(kind: str, project: Path) -> None:
    environment = up(project)
    tasks = environment.tasks()
    assert [(task.task, task.node, task.alive) for task in tasks] == [
        ("ps-0", "tf1", True),
        ("worker-0", "tf2", True),
        ("worker-1", "tf1", True),
    ]
    pids = {task.task: int(task.detail.removeprefix("pid ")) for task in tasks}
    assert os.sched_getaffinity(pids["worker-0"]) == {0}
    assert os.sched_getaffinity(pids["worker-1"]) == os.sched_getaffinity(0)
    assert environment.sources_sha256 == digest()
    submit(environment, "")
    files = collected(environment, "r1")
    assert states(files) == dict.fromkeys(pids, State.SUCCEEDED)
    assert b'"kind": "step"' in files["tasks/worker-0.jsonl"]
    output = {task: files[f"logs/{task}.log"].decode() for task in ("ps-0", "worker-0")}
    port = environment.cluster_spec()["worker"][0].rpartition(":")[2]
    if kind == "namespaces":
        assert output["ps-0"].startswith("on tf1 ('tf1', ")
        assert output["worker-0"] == f"on tf2 ('tf2', {port}) 0,1\n"
    else:
        assert output["worker-0"].endswith(f"('localhost', {port}) 0,1\n")
    assert output["ps-0"].endswith(" -1\n")
    lines = list(environment.logs(["worker-0"], follow=False, tail=3))
    assert lines[-1] == "worker-0  | lab: run r1: succeeded"
    assert len(lines) == 3
    assert [request.run_id for request in environment.runs()] == ["r1"]
    assert environment.provenance()["isolation"] == kind
    assert json.loads(environment.boot_file()[1])["isolation"] == kind
    task, folder, host, processes = in_shell(environment, "worker-0", SHELL)
    assert (task, folder) == ("worker-0 0,1", str(project))
    assert (host == "tf2", int(processes) < 12) == (kind == "namespaces",) * 2
    environment.down()
    assert left(project) == []
    assert not (project / "state" / "local" / "demo").exists()
    assert LocalBackend().find("demo") is None


SHELL = "echo $LAB_TASK $CUDA_VISIBLE_DEVICES; pwd; hostname; ls /proc | grep -c '^[0-9]'"


def in_shell(environment: LocalEnvironment, task: str, *script: str) -> list[str]:
    argv = [*environment.shell(task)[:-4], "/bin/sh", "-c", *script]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("kind", "victim"),
    [("namespaces", "recorded"), ("namespaces", "supervisor"), ("processes", "recorded")],
    indirect=["kind"],
)
def test_killed_supervisor_leaves_nothing(kind: str, victim: str, project: Path) -> None:
    environment = up(project)
    train(environment)
    record = json.loads((project / "state/local/demo/environment.json").read_text())
    pid = record["process"]["pid"]
    if victim == "supervisor":
        pid = ProcessHandle.of(pid).descendants()[0].pid
    assert len(left(project)) >= 8
    chunks = environment.stream("r1", {}, follow=True)
    assert next(chunks) is not None
    os.kill(pid, signal.SIGKILL)
    if kind == "namespaces":  # else the agents outlive it for as long as their programs need to end
        with pytest.raises(LabError, match="has stopped; boot it again"):
            list(chunks)
    wait_for(lambda: not left(project), "every process is gone")
    # A process that is about to end has no environment variables any more.
    wait_for(lambda: LocalBackend().find("demo") is None, "the environment is not up")
    assert environment.tasks()[0].alive is False
    with pytest.raises(LabError, match="has stopped"):
        submit(environment, "", "r2")
    remains = LocalBackend().find_any("demo")
    assert remains is not None
    assert set(states(collected(remains, "r1", follow=False))) == {"ps-0", "worker-0", "worker-1"}
    # Its files are kept until the next environment of this name, and no longer.
    assert (project / "state/local/demo/runs/r1/logs/worker-0.log").exists()
    again = up(project)
    assert again.runs() == []


def test_an_environment_whose_directory_is_removed_ends(kind: str, project: Path) -> None:
    train(up(project))
    directory = project / "state/local/demo"
    shutil.rmtree(directory, ignore_errors=True)  # an agent may write at the same time
    assert not (directory / "environment.json").exists()
    wait_for(lambda: not left(project), "every process is gone")


UPS = """\
import sys
from pathlib import Path
from lab.backends.local.backend import LocalBackend
from lab.base.errors import LabError
from tests.e2e.test_local_environment import plan
from tests.support.commands import free_port, lab
try:
    LocalBackend().up(plan(port=free_port()), root=Path(sys.argv[1]))
except LabError as error:
    sys.exit(str(error))
"""


def test_three_ups_at_once(kind: str, project: Path) -> None:
    helpers = [
        subprocess.Popen(
            [sys.executable, "-c", UPS, str(project)],
            cwd=ROOT,
            env=base_environ(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    output = [helper.communicate(timeout=PATIENCE_S)[1] for helper in helpers]
    assert sorted(helper.returncode for helper in helpers) == [0, 1, 1], output
    assert all(len(text.splitlines()) <= 1 for text in output)
    assert len(LocalBackend().all()) == 1
    before = left(project)
    with pytest.raises(LabError, match=f"'demo' is already up, booted from {project}"):
        up(project)
    assert left(project) == before


def test_lost_agent_is_shown(kind: str, project: Path) -> None:
    environment = up(project)
    pid = int(environment.tasks()[1].detail.removeprefix("pid "))
    ProcessHandle.of(pid).signal(signal.SIGKILL)
    wait_for(lambda: environment.tasks()[1].detail == "agent ended, SIGKILL", "it is said")
    assert [task.alive for task in environment.tasks()] == [True, False, True]
    with pytest.raises(LabError, match="worker-0 has no running agent"):
        environment.shell("worker-0")
    with pytest.raises(InputError, match="'worker-9'; its tasks: ps-0, worker-0, worker-1"):
        environment.shell("worker-9")
    with pytest.raises(InputError, match="no task 'x'"):
        environment.logs(["x"], follow=False, tail=1)


def test_network_of_the_nodes(project: Path) -> None:
    needs_namespaces()
    environment = up(project)
    code = (
        "import socket, sys\n"
        "from pyroute2 import IPRoute\n"
        "n = IPRoute()\n"
        "print(sorted(l.get('ifname') for l in n.get_links() if l['flags'] & 1))\n"
        "print([str(r.get('RTA_DST')) for r in n.get_default_routes()])\n"
        "print([q.get('kind') for q in n.get_qdiscs() if q.get('kind') == 'tbf'])\n"
        "print(socket.gethostbyname('tf1'), socket.gethostbyname('tf2'))\n"
        "print([l.get('mtu') for l in n.get_links() if l.get('ifname') == 'eth0'])\n"
    )

    def seen_by(task: str) -> list[str]:
        return in_shell(environment, task, f'"{sys.executable}" -c "$0"', code)

    addresses = "10.77.0.2 10.77.0.3"
    assert seen_by("worker-0") == ["['eth0', 'lo']", "[]", "['tbf']", addresses, "[1500]"]
    assert seen_by("ps-0") == ["['eth0', 'lo']", "[]", "[]", addresses, "[65535]"]


def test_ports_of_another_program_and_of_another_environment(
    project: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    monkeypatch.setenv("LAB_LOCAL", "fork")
    port = free_port()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port + 2))
        listener.listen()
        with pytest.raises(LabError, match=f"port {port + 2} cannot be used: Address already"):
            LocalBackend().up(plan("one", port), root=project)
    assert notices == []
    assert not (project / "state/local/one").exists()
    LocalBackend().up(plan("one", port), root=project)
    with pytest.raises(LabError, match=f"'one' is already up, booted from {project}"):
        LocalBackend().up(plan("one", port), root=project)
    # Programs of the first would find the ports of the second in use.
    two = LocalBackend().up(plan("two", port + 2), root=project, share=True)
    assert [task.address for task in two.tasks()] == [f"localhost:{port + i}" for i in (3, 4, 5)]
    assert [each.project for each in LocalBackend().all()] == ["one", "two"]


SMALL = """\
version: 1
name: mnist
nodes: {tf1: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf1]}}
"""


@pytest.mark.parametrize("kind", ["processes"], indirect=True)
def test_two_directories_with_the_same_name_are_up_at_once(kind: str, project: Path) -> None:
    def lab(folder: Path, *words: str) -> str:
        command = [sys.executable, "-m", "lab", *words]
        environ = {**base_environ(), "PYTHONPATH": str(ROOT)}
        return subprocess.check_output(command, cwd=folder, env=environ, text=True)

    def listed() -> dict[str, str]:
        return {each["directory"]: each["name"] for each in json.loads(lab(ROOT, "ps", "--json"))}

    one, two = project / "one", project / "two"
    for folder in (one, two):
        (folder / "scripts").mkdir(parents=True)
        (folder / "cluster.yaml").write_text(SMALL)
        lab(folder, "up", "--backend", "local", "--gpus", "none")
    names = listed()
    assert (names.keys(), names[str(one)]) == ({str(one), str(two)}, "mnist")
    assert names[str(two)].startswith("mnist-")
    lab(one, "down")
    assert listed() == {str(two): names[str(two)]}
    lab(two, "down")
    assert listed() == {}


def test_the_example_course_works_up_to_its_last_answer(tmp_path: Path) -> None:
    lab(tmp_path, "init", "--course", "--gpus", "none")
    lab(tmp_path, "run", "points", "--points", "100", *LOCAL)
    assert "✓ few" in lab(tmp_path, "check", "points", "--answer", "workers=3")[0]
    lab(tmp_path, "restore", "points", "many")
    lab(tmp_path, "check", "points", "--answer", "error=0.1", code=1)
    assert "✓ many" in lab(tmp_path, "check", "points", "--answer", "error=0.00085")[0]
