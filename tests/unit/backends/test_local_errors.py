"""The errors of projects, tasks, the local backend, the kernel and containers.

`test_cli.py` has those of the command line. The texts are in the snapshot: each is one line, which
says what is wrong, where, and how to fix it.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker.errors
import pyroute2
import pytest
from syrupy.assertion import SnapshotAssertion

from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.volume import upload
from lab.backends.engine.client import engine_errors
from lab.backends.local import backend, environment, network, state
from lab.backends.local.backend import LocalBackend
from lab.backends.local.environment import LocalEnvironment
from lab.backends.local.state import EnvironmentRecord, Isolation
from lab.backends.process import ProcessHandle
from lab.backends.recorded import remove_tree
from lab.base.errors import LabError
from lab.cluster import project
from lab.cluster.config import load_cluster, parse_cluster
from lab.cluster.placement.plan import Plan, PlannedNode, PlannedTask
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.mnist import DataError, load_mnist
from lab.protocol.network.link import LinkError, apply_link
from lab.protocol.volume import Request, RunSpec
from lab.runner import fitting
from lab.runner.store.directory import RunDir, safe_run_id
from lab.task.agent.agent_config import AgentConfig, AgentConfigError
from lab.task.sdk.program import ProgramError, make_directory
from tests.support.cli import CLUSTER
from tests.support.commands import free_port
from tests.support.containers import an_engine, inspected
from tests.support.disks import fill, small_disk
from tests.support.fakes import raising
from tests.support.local import a_record
from tests.support.network import Netlink
from tests.support.specs import changed

RUN = "20260101-0000-async-aaaa"
REQUEST = Request(RUN, RunSpec("async", "mnist_async.py"), {"ps": ["tf1:1"]})
ASYNC = EXPERIMENTS["async"]
REFUSALS = (LabError, AgentConfigError, DataError, LinkError, ProgramError, network.NetworkError)

Provoke = Callable[[Path, pytest.MonkeyPatch], object]
ERRORS: dict[str, Provoke] = {}


def error(provoke: Provoke) -> Provoke:
    """Add a function to the table; it raises the error that its name describes."""
    ERRORS[provoke.__name__] = provoke
    return provoke


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAB_LOCAL", "")
    monkeypatch.chdir(tmp_path)


def a_cluster(*tasks: int) -> str:
    jobs = [f"  {'ab'[i]}: {{on: [{', '.join(['tf1'] * many)}]}}" for i, many in enumerate(tasks)]
    return "\n".join(["version: 1", "name: x", "nodes: {tf1: {}}", "jobs:", *jobs])


@error
def a_config_without_permission(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "open", raising(PermissionError(13, "Permission denied")))
    load_cluster(root / "cluster.yaml")


@error
def a_config_outside_of_a_project(root: Path, _: pytest.MonkeyPatch) -> None:
    (root / "scripts").rmdir()
    project.own_root(root / "cluster.yaml")


@error
def data_that_containers_do_not_see(root: Path, _: pytest.MonkeyPatch) -> None:
    assert ComposeBackend().task_path(root / "data", root) == "/lab/data"
    ComposeBackend().task_path(root, root)


@error
def data_without_permission(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)  # root may read everything
    project.check_data_dir(str(root))


@error
def a_syntax_error_in_a_module_that_a_program_imports(root: Path, _: pytest.MonkeyPatch) -> None:
    (root / "scripts" / ASYNC.program).write_text("from mnist_model import MODELS\n")
    (root / "scripts/mnist_sync.py").write_text("def (")  # nothing imports it
    (root / "scripts/mnist_model.py").write_text("import placement\n")
    (root / "scripts/placement.py").write_text("")
    fitting.check_program(ASYNC, root)
    (root / "scripts/placement.py").write_text("x =\n")
    fitting.check_program(ASYNC, root)


ENVIRON = {
    "LAB_PROJECT": "mnist",
    "LAB_NODE": "tf1",
    "LAB_TASK": "worker-0",
    "LAB_CLUSTER": '{"worker": ["tf1:2222"]}',
    "LAB_RUNS": "/runs",
    "LAB_SCRIPTS": "/lab/scripts",
    "LAB_DATA": "/lab/data",
}


@error
def a_directory_that_cannot_be_made(root: Path, _: pytest.MonkeyPatch) -> None:
    (root / "file").write_text("")
    make_directory(root / "file/model")


def stored(record: EnvironmentRecord | None = None, *agents: str) -> LocalEnvironment:
    """An environment with this record, where this process replaces the agents of these tasks."""
    record = record or a_record(isolation=Isolation.PROCESSES)
    place = state.StateDir.of(record.project)
    place.runs.mkdir(parents=True)
    place.write(record)
    for task in agents:
        place.write_agent(task, ProcessHandle.of(os.getpid()))
    return LocalEnvironment(place, record)


def with_agents() -> LocalEnvironment:
    return stored(None, "ps-0", "worker-0", "worker-1")


def up(root: Path) -> None:
    task = PlannedTask("ps", 0, "tf1", free_port())
    plan = Plan("mine", "none", "0" * 64, nodes=(PlannedNode("tf1"),), tasks=(task,))
    LocalBackend().up(plan, root=root)


@error
def a_state_directory_that_is_a_file(root: Path, _: pytest.MonkeyPatch) -> None:
    (root / "state").write_text("a file")
    up(root)


@error
def a_full_state_directory(root: Path, _: pytest.MonkeyPatch) -> None:
    with small_disk(root / "state"):
        fill(root / "state")
        try:
            up(root)
        finally:
            assert list(state.StateDir.base().glob("*/")) == []


@error
def an_agent_that_does_not_start(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "module_command", lambda _: ["sh", "-c", "exec sleep 60"])
    monkeypatch.setattr(backend, "_BOOT_WITHIN_S", 0.0)
    up(root)


@error
def a_run_without_all_agents(root: Path, _: pytest.MonkeyPatch) -> None:
    there = stored(None, "ps-0", "worker-1")
    try:
        there.submit(changed(REQUEST, own=True), {"program": root})
    finally:
        assert there.runs() == []
        assert not (state.StateDir.of("demo").runs / "incoming").exists()


@error
def a_program_that_cannot_be_copied(root: Path, _: pytest.MonkeyPatch) -> None:
    (root / "program").mkdir()
    (root / "program/a.py").write_text("")
    (root / "program/b.py").symlink_to("nowhere")
    try:
        with_agents().submit(changed(REQUEST, own=True), {"program": root / "program"})
    finally:
        assert list((state.StateDir.of("demo").runs / "incoming").iterdir()) == []


@error
def a_second_run(_root: Path, _: pytest.MonkeyPatch) -> None:
    there = with_agents()
    there.submit(REQUEST)
    there.submit(replace(REQUEST, run_id="20260101-0000-async-bbbb"))


@error
def a_run_volume_that_is_a_file(root: Path, _: pytest.MonkeyPatch) -> None:
    there = with_agents()
    runs = state.StateDir.of("demo").runs
    runs.rename(root / "away")
    runs.write_text("a file")
    there.submit(REQUEST)


def test_processes_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TERM_WITHIN_S", "_KILL_WITHIN_S"):
        monkeypatch.setattr(environment, name, 0.0)
    with subprocess.Popen(["sleep", "60"]) as process:
        there = stored(a_record(process=ProcessHandle.of(process.pid)))
        with pytest.raises(LabError, match=rf"did not end; see pid {process.pid}"):
            there.end()
        process.kill()


def test_a_missing_python_is_no_fault_of_the_state_directory(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "module_command", lambda _: ["/no/such/python"])
    with pytest.raises(FileNotFoundError, match="/no/such/python"):
        up(root)


def test_unremovable_files() -> None:
    message = r"/proc/version cannot be removed: rm: .*; remove it by hand"
    with pytest.raises(LabError, match=message):
        remove_tree(Path("/proc/version"))


@pytest.mark.parametrize(
    ("code", "interfaces"), [(errno.ENOENT, 1), (errno.EPERM, 1), (errno.EPERM, 2)]
)
@pytest.mark.parametrize(("rate", "delay"), [(8000, None), (None, 5)], ids=["rate", "delay"])
def test_links_that_the_kernel_refuses(
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    interfaces: int,
    rate: int | None,
    delay: int | None,
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.setattr(pyroute2, "IPRoute", lambda: Netlink(code, interfaces))
    with pytest.raises(LinkError) as caught:
        apply_link(rate, delay)
    assert str(caught.value) == snapshot


@error
def a_network_that_the_kernel_refuses(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "IPRoute", lambda: Netlink(errno.EPERM))
    network.build([], root)


# ---- Containers; the engine's answers are made up


def containers(*found: dict[str, Any], volumes: tuple[str, ...] = ()) -> ComposeEnvironment:
    return ComposeEnvironment(an_engine(*found, volumes=volumes), "mnist")


def answering(answer: bytes) -> ComposeEnvironment:
    made = ComposeEnvironment(an_engine(), "mnist")
    made.run_volume.pipe = lambda *_: (each for each in [answer])  # type: ignore[attr-defined]
    return made


@error
def a_container_that_is_gone(_root: Path, _: pytest.MonkeyPatch) -> None:
    with engine_errors("looking"):
        raise docker.errors.NotFound("404", explanation="No such container: c0ffee")


DOWN = inspected(Status="exited", ExitCode=1)
CALLS: dict[str, Callable[[Path], object]] = {
    "a config with too many tasks of a job": lambda _: parse_cluster(
        a_cluster(10_001).encode(), "cluster.yaml"
    ),
    "a config in a file": lambda root: load_cluster(root / "cluster.yaml/x"),
    "a run without run.json": lambda root: RunDir(root / "a-run").read(),
    "a request that names another directory": lambda _: safe_run_id("../up"),
    "an agent without a node": lambda _: AgentConfig.from_environ({**ENVIRON, "LAB_NODE": ""}),
    "an agent without a task": lambda _: AgentConfig.from_environ({**ENVIRON, "LAB_TASK": "ps"}),
    "an agent of no task": lambda _: AgentConfig.from_environ({**ENVIRON, "LAB_TASK": "ps-3"}),
    "a batch larger than the data": lambda _: load_mnist().train.batches_per_epoch(60_000),
    "a shell in an unknown task": lambda _: stored().shell("ps-9"),
    "logs of an unknown task": lambda _: stored().logs(["ps-9"], follow=False, tail=None),
    "an unknown run that is cancelled": lambda _: stored().cancel("nothing", "why"),
    "an unknown run that is collected": lambda _: list(stored().stream("no", {}, follow=False)),
    "a run in containers that are down": lambda _: containers(DOWN).submit(REQUEST),
    "a shell in a container that is down": lambda _: containers(DOWN).shell("worker-1"),
    "removed containers": lambda _: containers().cancel("x", "y"),
    "a volume without an image": lambda _: containers(volumes=("mnist_runs",)).cancel("x", "y"),
    "a request that is none": lambda _: answering(b"{}\n").runs(),
    "notes that are a list": lambda _: answering(b"[]").collected(),
    "notes that are damaged": lambda _: answering(b"{").collected(),
    "notes of another type": lambda _: answering(b'{"r": 1}').collected(),
    "a stream that stops": lambda _: list(answering(b"noise\n").stream("r", {}, follow=False)),
    "a program that the engine refuses": lambda root: upload(
        an_engine(inspected()), "c0ffee", "r", {"program": root / "scripts"}
    ),
}
ERRORS |= {name: lambda root, _, call=call: call(root) for name, call in CALLS.items()}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_one_line(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    (root / "cluster.yaml").write_text(CLUSTER)
    with pytest.raises(REFUSALS) as caught:
        ERRORS[name](root, monkeypatch)
    text = str(caught.value)
    assert text.isprintable()
    assert text.replace(str(root), "PROJECT") == snapshot
