"""The local backend's arithmetic, files and checks of the machine; nothing is booted here."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.local import isolation as isolations
from lab.backends.local import state
from lab.backends.local.backend import LocalBackend
from lab.backends.local.environment import LocalEnvironment
from lab.backends.local.state import Isolation, StateDir, check_ports_free
from lab.backends.log_tail import follow, last_lines
from lab.backends.process import ProcessHandle, boot_id, pid_in_namespace
from lab.backends.recorded import record_text
from lab.base.errors import LabError
from lab.base.units import GIB
from lab.protocol.runtimes import RUNTIMES, Runtime
from lab.protocol.volume import Volume
from tests.support.agents import ROOT, wait_for
from tests.support.conditions import lacking
from tests.support.local import PLAN, a_record


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))


@pytest.mark.parametrize(
    ("isolation", "addresses", "ips"),
    [
        (Isolation.NAMESPACES, "tf1:2222 tf2:2222 tf2:2223", ["10.77.0.2", "10.77.0.3"]),
        # On the loopback they never meet.
        (Isolation.PROCESSES, "localhost:2222 localhost:2223 localhost:2224", [None, None]),
    ],
)
def test_addresses(isolation: Isolation, addresses: str, ips: list[str | None]) -> None:
    assert state.addresses_of(PLAN, isolation) == addresses.split()
    assert [node.ip for node in state.nodes_of(PLAN, isolation)] == ips


def test_gpus_are_pinned_by_variables() -> None:
    tasks = state.tasks_of(PLAN, Isolation.NAMESPACES, root=Path("/p"), runs=Path("/v"))
    environs = {task.task: task.environ for task in tasks}
    assert environs["ps-0"]["CUDA_VISIBLE_DEVICES"] == "-1"
    assert environs["worker-0"]["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert all(environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID" for environ in environs.values())
    assert environs["worker-1"]["LAB_GPU_MEMORY_FRACTION"] == "0.2"
    assert "LAB_GPU_MEMORY_FRACTION" not in environs["worker-0"]
    assert environs["worker-1"]["LAB_SCRIPTS"] == "/p/scripts"
    assert json.loads(environs["ps-0"]["LAB_CLUSTER"]) == PLAN.cluster_spec()


def test_servers_are_made_with_the_gpu_options() -> None:
    """A session's options would be too late: the server has made its devices by then."""
    scripts = {path.name: path.read_text() for path in (ROOT / "scripts").glob("*.py")}
    del scripts["first_async.py"]  # the first program of a reader has no options
    with_server = [text for text in scripts.values() if "tf.train.Server(" in text]
    assert len(with_server) > 5
    assert all("flags.task_index, config=server_config(flags))" in text for text in with_server)


def test_notices_name_missing_parts() -> None:
    assert state.notices_of(replace(PLAN, tasks=PLAN.tasks[:2]), None) == []
    lines = state.notices_of(PLAN, "forbidden")
    assert lines[0] == "local: memory limits are not enforced"
    assert "(forbidden)" in lines[1]
    assert "listen on every interface" in lines[1]
    assert lines[2] == "local: links are not applied without namespaces"
    large = replace(PLAN.tasks[0], shm_bytes=GIB)
    assert state.notices_of(replace(PLAN, tasks=(large,)), None) == [
        "local: shm has no effect: tasks share the host's /dev/shm"
    ]


@pytest.mark.parametrize(
    ("cpuset", "cpus"), [("0", {0}), ("4-7", {4, 5, 6, 7}), ("0-1,8,10-11", {0, 1, 8, 10, 11})]
)
def test_cpus(cpuset: str, cpus: set[int]) -> None:
    assert state.parse_cpuset(cpuset) == cpus


def test_record_of_an_environment_survives_its_file(tmp_path: Path) -> None:
    record = a_record()
    place = StateDir(tmp_path)
    place.write(record)
    assert place.read() == record
    environment = LocalEnvironment(StateDir(Path()), record)
    assert environment.sources_sha256 == "5" * 64
    assert environment.cluster_spec() == PLAN.cluster_spec()
    raw = json.loads(place.record.read_text())
    for part in (raw, raw["process"], raw["nodes"][0], raw["tasks"][0], raw["nodes"][1]["link"]):
        part["later"] = 1  # a field of a later version of lab
    place.record.write_text(json.dumps(raw))
    assert place.read() == record


def test_environment_is_found_while_its_process_runs() -> None:
    place = state.StateDir.of("demo")
    place.directory.mkdir(parents=True)
    place.write(a_record())
    backend = LocalBackend()
    found = backend.find("demo")
    assert found is not None
    assert [each.project for each in backend.all()] == ["demo"]
    assert backend.find("other") is None
    # The same process id in another process, or in another life of the machine.
    recycled = replace(ProcessHandle.of(os.getpid()), started="1")
    rebooted = replace(ProcessHandle.of(os.getpid()), boot="x")
    for identity in (recycled, rebooted):
        place.write(a_record(process=identity))
        assert backend.find("demo") is None
        assert backend.all() == []
    assert backend.find("No Name") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", record_text(a_record()).replace('"pid"', '"p"')]
)
def test_an_environment_with_an_unreadable_record_is_unchanged(text: str) -> None:
    place = state.StateDir.of("demo")
    place.runs.mkdir(parents=True)
    place.record.write_text(text)
    backend = LocalBackend()
    for look in (
        lambda: backend.find("demo"),
        lambda: backend.find_any("demo"),
        backend.all,
        backend.list_environments,
        lambda: backend.up(PLAN, root=Path("/p")),
    ):
        with pytest.raises(LabError, match=r"demo/environment\.json cannot be read: .*; stop its"):
            look()
    assert place.runs.is_dir()
    assert backend.find("other") is None


def test_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LAB_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state.StateDir.base() == tmp_path / "lab" / "local"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state.StateDir.base() == tmp_path / ".local" / "state" / "lab" / "local"


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "-a", "x" * 40])
def test_strange_project_names(name: str) -> None:
    with pytest.raises(LabError, match="is not a project name"):
        state.StateDir.of(name)


def test_a_process_is_known_by_its_start_time_too() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = ProcessHandle.of(child.pid)
    assert identity.alive()
    replace(identity, started="1").signal(signal.SIGKILL)  # another process with its id
    child.stdin.write(b"\n")
    child.stdin.close()
    wait_for(lambda: not identity.alive(), "a zombie is dead")
    assert child.wait() == 0
    identity.signal(signal.SIGKILL)
    with pytest.raises(ProcessLookupError):
        ProcessHandle.of(child.pid)


def test_descendants() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    parent, this = ProcessHandle.of(child.pid), ProcessHandle.of(os.getpid())
    wait_for(lambda: len(parent.descendants()) == 1, "a grandchild")
    (grandchild,) = parent.descendants()
    assert {parent, grandchild} <= set(this.descendants())
    assert replace(this, started="1").descendants() == []  # another process with its id
    assert pid_in_namespace(grandchild.pid) == grandchild.pid
    child.stdin.close()
    child.wait()
    assert pid_in_namespace(grandchild.pid) is None


SUPERVISOR = """
import subprocess, sys
agent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(agent.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def supervisor() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def booted(supervisor: subprocess.Popen[str], agents: dict[str, ProcessHandle]) -> LocalEnvironment:
    place = state.StateDir.of("demo")
    record = a_record(process=ProcessHandle.of(supervisor.pid), isolation=Isolation.PROCESSES)
    place.runs.mkdir(parents=True)
    place.write(record)
    volume = Volume(place.runs)
    volume.agents.mkdir()
    for task in record.tasks:  # as a program can write it
        volume.agent(task.task).write_text(json.dumps({"pid": os.getpid()}))
    for task, agent in agents.items():
        place.write_agent(task, agent)
    return LocalEnvironment(place, record)


def test_an_agent_counts_only_with_its_start_time(supervisor: subprocess.Popen[str]) -> None:
    agent = ProcessHandle.of(int(supervisor.stdout.readline()))
    later = replace(ProcessHandle.of(os.getpid()), started="1")
    environment = booted(supervisor, {"ps-0": agent, "worker-0": later})
    alive = {each.task: each.alive for each in environment.tasks()}
    assert alive == {"ps-0": True, "worker-0": False, "worker-1": False}
    environment.end()  # waits for no other process
    assert not agent.alive()
    assert LocalBackend().find_any("demo") is None


def test_an_environment_is_up_while_an_agent_runs(supervisor: subprocess.Popen[str]) -> None:
    this = ProcessHandle.of(os.getpid())
    environment = booted(supervisor, {"ps-0": this})
    supervisor.kill()
    supervisor.wait()
    assert environment.is_up
    state.StateDir.of("demo").write_agent("ps-0", replace(this, started="1"))
    assert not environment.is_up
    (state.StateDir.of("demo").directory / "output/ps-0.agent").write_text("{")
    assert not environment.is_up


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1"])  # noqa: S104
def test_port_in_use_is_named(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        try:
            listener.bind((address, 0))
        except OSError:
            lacking("this machine has no IPv6")
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(LabError, match=f"port {port} cannot be used: Address already in use"):
            check_ports_free([port])
    with pytest.raises(LabError, match="port 65536 is out of range"):
        check_ports_free([65536])


def test_port_that_was_just_used_is_free() -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        server, _ = listener.accept()
        server.close()  # the server's side then waits in TIME_WAIT
        client.close()
    check_ports_free([port])


def test_reasons_for_no_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("nsenter", ""), ("unshare", "echo 'unshare: \x1b[31mno' >&2; exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert isolations.unavailable_reason() == "unshare: \\x1b[31mno"
    monkeypatch.setenv("PATH", "")
    assert isolations.unavailable_reason() == "unshare is not installed (package util-linux)"


def test_namespaces_are_probed_once_for_each_boot_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["forbidden", None, "forbidden since", None])
    monkeypatch.setattr(isolations, "_probe", lambda: next(answers))
    memory = tmp_path / "known"
    assert isolations.unavailable_reason(memory) == "forbidden"
    for _ in range(3):  # only the good news is remembered
        assert isolations.unavailable_reason(memory) is None
    monkeypatch.setenv("LAB_LOCAL", "fork")
    assert isolations.unavailable_reason(memory) == "LAB_LOCAL has no namespaces"
    monkeypatch.delenv("LAB_LOCAL")
    isolations.clear_cache(memory)
    isolations.clear_cache(memory)
    assert isolations.unavailable_reason(memory) == "forbidden since"
    memory.write_text("another boot")
    assert isolations.unavailable_reason(memory) is None
    assert memory.read_text() == boot_id()


def test_a_boot_that_fails_lets_the_next_one_probe_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolations, "UNSHARE", ("false",))  # forbidden since
    memory = state.namespaces_cache()
    memory.parent.mkdir(parents=True)
    memory.write_text(boot_id())
    with pytest.raises(LabError, match="failed to start"):
        LocalBackend().up(PLAN, root=tmp_path)
    assert not memory.exists()


def test_unavailable_without_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runtime, "python", lambda *_: None)
    reason = LocalBackend().unavailable_reason()
    assert str(reason).startswith("TensorFlow 2.21 is not installed for ")
    # One framework is enough.
    only = RUNTIMES["jax"]
    monkeypatch.setattr(Runtime, "python", lambda each, _: Path("x") if each is only else None)
    assert LocalBackend().unavailable_reason() is None


def test_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert last_lines(path, 3) == ""
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(20_000)) + b"\x1b[2J\n")
    assert last_lines(path, 2) == "line 19999 / \\x1b[2J"
    assert [line for _, line in follow({"x": path}, 1, None)] == ["\\x1b[2J"]
    assert len(list(follow({"x": path}, None, None))) == 20_001
    assert list(follow({"x": path}, 0, None)) == []


def test_lines_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    alive = threading.Event()
    alive.set()
    lines = follow({"x": path}, None, alive.is_set)
    path.write_bytes(b"one\ntw")
    assert next(lines) == ("x", "one")
    with path.open("ab") as file:
        file.write(b"o\n")
    assert next(lines) == ("x", "two")
    with path.open("ab") as file:
        file.write(b"three\n")
    alive.clear()
    assert list(lines) == [("x", "three")]


def test_supervisor_waits_for_its_start_message(tmp_path: Path) -> None:
    place = StateDir(tmp_path / "demo")
    place.directory.mkdir()
    place.write(a_record(isolation=Isolation.PROCESSES, tasks=()))
    command = [sys.executable, "-m", "lab.backends.local.supervisor", str(place.directory)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 1
    assert not (place.directory / "output").exists()
