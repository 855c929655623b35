"""Error messages of the local backend about processes, ports, files and the kernel."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyroute2
import pytest

from lab.backends.directory import remove_tree
from lab.backends.local import LocalBackend, backend, manifest, network, processes, state
from lab.backends.local.environment import LocalEnvironment
from lab.backends.local.network import NetworkError
from lab.backends.local.state import EnvironmentRecord, Isolation
from lab.backends.process import ProcessHandle
from lab.errors import InputError, LabError
from lab.placement.plan import Plan, PlannedNode, PlannedTask
from lab.task.probes.netem import LinkError, apply_link
from lab.task.protocol import Request, RunSpec
from tests.support.disks import fill, small_disk
from tests.support.local import a_record
from tests.support.network import Netlink
from tests.support.specs import changed

REQUEST = Request("20260101-0000-async-aaaa", RunSpec("async", "mnist_async.py"), {"ps": ["tf1:1"]})


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate state directory, and no namespaces."""
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAB_LOCAL_NAMESPACES", "0")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.fixture
def ended() -> ProcessHandle:
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = ProcessHandle.of(process.pid)
        process.kill()
    return identity


def a_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def a_plan(name: str = "mine") -> Plan:
    return Plan(
        name=name,
        mode="none",
        cluster_sha256="0" * 64,
        nodes=(PlannedNode("tf1"),),
        tasks=(PlannedTask("ps", 0, "tf1", a_port()),),
    )


def stored(record: EnvironmentRecord) -> LocalEnvironment:
    place = state.state_dir(record.project)
    place.runs.mkdir(parents=True)
    place.write(record)
    return LocalEnvironment(place, record)


def up(plan: Plan, root: Path) -> str:
    with pytest.raises(LabError) as caught:
        LocalBackend().up(plan, root=root, notify=lambda line: None)
    return str(caught.value)


def test_an_invalid_state_directory(root: Path) -> None:
    (root / "state").write_text("a file")
    assert "cannot be used: " in up(a_plan(), root)


def test_a_full_state_directory(root: Path) -> None:
    with small_disk(root / "state"):
        fill(root / "state")
        assert "No space left on device; free space there" in up(a_plan(), root)
        assert list(state.base().glob("*/")) == []


def test_another_fault_of_a_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "module_command", lambda module: ["/no/such/python"])
    with pytest.raises(FileNotFoundError, match="/no/such/python"):
        LocalBackend().up(a_plan(), root=root, notify=lambda line: None)
    (state.base() / "mine").rename(state.base() / "was")
    (state.base() / "mine").write_text("a file")
    assert "the state directory" in up(a_plan(), root)


def test_an_environment_that_exists(root: Path) -> None:
    stored(a_record())
    assert "the local environment 'demo' is up already, booted from /p; use it" in up(
        a_plan("demo"), root
    )


def test_ports_of_another_environment(root: Path) -> None:
    plan = a_plan()
    kind = Isolation.PROCESSES
    tasks = manifest.tasks_of(plan, kind, root=root, runs=root)
    stored(replace(a_record(), isolation=kind, tasks=tasks, nodes=manifest.nodes_of(plan, kind)))
    assert "belongs to the local environment 'demo'; remove that" in up(plan, root)


def test_a_supervisor_that_ends_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit('no bridge')"]
    monkeypatch.setattr(backend, "module_command", lambda module: fails)
    assert up(a_plan(), root) == "the local environment 'mine' failed to start: no bridge"


def test_missing_agents(sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    there = stored(a_record())
    place = state.state_dir("demo")
    monkeypatch.setattr(backend, "_BOOT_WITHIN_S", 0.0)
    with pytest.raises(LabError, match=r"ps-0 did not start within 0 s: no output"):
        backend._wait_for_agents(there, sleeper, place)
    place.ended("ps-0").parent.mkdir(parents=True, exist_ok=True)
    place.ended("ps-0").write_text("exit code 2")
    with pytest.raises(LabError, match=r"the agent of ps-0 ended at once: no output"):
        backend._wait_for_agents(there, sleeper, place)


def test_a_removed_environment(ended: ProcessHandle) -> None:
    there = stored(a_record(process=ended))
    with pytest.raises(LabError, match=r"has stopped: its supervisor ended; boot it again"):
        there.submit(REQUEST)
    with pytest.raises(LabError, match=r"ps-0 has no running agent; run `lab down demo`"):
        there.shell("ps-0")


def test_missing_tasks_and_runs() -> None:
    there = stored(a_record())
    message = r"environment demo has no task 'ps-9'; its tasks: ps-0, worker-0, worker-1"
    with pytest.raises(InputError, match=message):
        there.logs(["ps-9"], follow=False, tail=None)
    with pytest.raises(InputError, match=message):
        there.shell("ps-9")
    for name in ("cancel", "ship"):
        with pytest.raises(LabError, match=r"no run 'nothing' on this volume"):
            list(
                there.stream("nothing", {}, follow=False)
                if name == "ship"
                else [there.cancel("nothing", "why")]
            )


def with_agents(there: LocalEnvironment, *tasks: str) -> LocalEnvironment:
    """The same, where this process replaces the agents of these tasks."""
    for task in tasks:
        state.state_dir(there.project).write_agent(task, ProcessHandle.of(os.getpid()))
    return there


def test_a_missing_agent(tmp_path: Path) -> None:
    there = with_agents(stored(a_record(isolation=Isolation.PROCESSES)), "ps-0", "worker-1")
    message = r"worker-0 of environment demo is not up: no agent; see `lab ps` and `lab logs`, then"
    with pytest.raises(LabError, match=message):
        there.submit(changed(REQUEST, own=True), {"program": tmp_path})
    assert there.runs() == []
    assert not (state.state_dir("demo").runs / "incoming").exists()


def test_a_program_that_cannot_be_copied_is_removed(tmp_path: Path) -> None:
    record = a_record(isolation=Isolation.PROCESSES)
    there = with_agents(stored(record), *(task.task for task in record.tasks))
    (tmp_path / "program").mkdir()
    (tmp_path / "program/a.py").write_text("")
    (tmp_path / "program/b.py").symlink_to("nowhere")
    with pytest.raises(LabError, match=r"the run volume .* cannot be used: "):
        there.submit(changed(REQUEST, own=True), {"program": tmp_path / "program"})
    assert list((state.state_dir("demo").runs / "incoming").iterdir()) == []


def test_a_second_run_and_an_invalid_volume() -> None:
    record = a_record(isolation=Isolation.PROCESSES)
    there = with_agents(stored(record), *(task.task for task in record.tasks))
    there.submit(REQUEST)
    with pytest.raises(LabError, match=r"in the local environment 'demo'; follow it with"):
        there.submit(replace(REQUEST, run_id="20260101-0000-async-bbbb"))
    place = state.state_dir("demo")
    (place.runs).rename(place.directory / "away")
    place.runs.write_text("a file")
    with pytest.raises(LabError, match=r"cannot be used: Not a directory; free space there"):
        there.submit(replace(REQUEST, run_id="20260101-0000-async-cccc"))


def test_processes_that_do_not_end(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_TERM_WITHIN_S", "_KILL_WITHIN_S"):
        monkeypatch.setattr(processes, name, 0.0)
    there = stored(a_record(process=ProcessHandle.of(sleeper.pid), isolation=Isolation.PROCESSES))
    with pytest.raises(LabError, match=rf"did not end; see pid {sleeper.pid}"):
        there.end()


# ---- The kernel


@pytest.mark.parametrize(
    ("code", "rate", "delay", "message"),
    [
        (errno.ENOENT, 8000, None, "this kernel has no tbf, which the rate of a link needs"),
        (errno.ENOENT, None, 5, "this kernel has no netem, which the delay of a link needs"),
        (errno.EPERM, 8000, None, "the rate of the link needs the capability NET_ADMIN"),
        (errno.EPERM, None, 5, "the delay of the link needs the capability NET_ADMIN"),
    ],
)
def test_links_that_the_kernel_refuses(
    monkeypatch: pytest.MonkeyPatch, code: int, rate: int | None, delay: int | None, message: str
) -> None:
    monkeypatch.setattr(pyroute2, "IPRoute", lambda: Netlink(code))
    with pytest.raises(LinkError, match=message):
        apply_link(rate, delay)
    monkeypatch.setattr(pyroute2, "IPRoute", lambda: Netlink(code, interfaces=2))
    with pytest.raises(LinkError, match=r"needs one network interface; found: eth0, eth1"):
        apply_link(rate, delay)


def test_networks_that_the_kernel_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "IPRoute", lambda: Netlink(errno.EPERM))
    with pytest.raises(NetworkError, match=r"refused to build a network: .*not permitted"):
        network.build([], tmp_path)


@pytest.mark.parametrize("reason", ["unshare: not permitted", "(1, 'not permitted')"])
@pytest.mark.parametrize("step", ["unshare", "_set_up"])
def test_a_node_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, reason: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(reason)

    monkeypatch.setattr(network, "unshare", lambda _flags: None)
    monkeypatch.setattr(network, step, refuse)
    node = manifest.nodes_of(a_plan(), Isolation.NAMESPACES)[0]
    with pytest.raises(NetworkError) as caught:
        network._build_node(lambda _pid, _position: None, 0, node, tmp_path / "hosts")
    assert str(caught.value) == f"node tf1: {reason}"


def test_unremovable_files() -> None:
    with pytest.raises(
        LabError, match=r"/proc/version cannot be removed: rm: .*; remove it by hand"
    ):
        remove_tree(Path("/proc/version"))
