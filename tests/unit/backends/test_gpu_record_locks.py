"""Environments that several commands use at once, and leftovers of killed commands."""

from __future__ import annotations

import copy
import errno
import fcntl
import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY, Mock

import pytest
from docker.errors import APIError

from lab.backends import state as locking
from lab.backends.compose import cleanup
from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.cleanup import NO_RESOURCES
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.local import state as processes
from lab.backends.local.backend import LocalBackend
from lab.backends.local.environment import LocalEnvironment
from lab.backends.local.state import Isolation, TaskRecord
from lab.backends.process import ProcessHandle
from lab.backends.recorded import EnvironmentDir
from lab.backends.state import Busy, lock_environment
from lab.base.errors import LabError
from lab.protocol.volume import Volume
from lab.protocol.volume.control import submit
from lab.protocol.volume.states import State
from lab.runner.lifecycle import has_stopped
from tests.support.agents import wait_for
from tests.support.cli import CLUSTER, Cli, Host
from tests.support.containers import an_engine, inspected
from tests.support.fakes import PLAN, REQUEST, FakeEnvironment, end, os_error, raising
from tests.support.local import a_record

LOCAL, COMPOSE = partial(lock_environment, "local"), partial(lock_environment, "compose")
NOBODY = ProcessHandle(pid=2**22 + 1, started="1", boot="never")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))


def a_dead_environment(project: str = "mnist") -> LocalEnvironment:
    place = processes.StateDir.of(project)
    place.runs.mkdir(parents=True)
    record = a_record(
        project=project,
        isolation=Isolation.PROCESSES,
        process=NOBODY,
        nodes=(),
        tasks=(),
    )
    place.write(record)
    return LocalEnvironment(place, record)


def test_a_read_error_is_not_the_end_of_the_agents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = TaskRecord("worker-0", "tf1", "127.0.0.1:1", (), None, {})
    record = replace(a_dead_environment()._record, tasks=(agent,))
    environment = LocalEnvironment(processes.StateDir.of("mnist"), record)
    assert has_stopped(environment)
    monkeypatch.setattr("lab.backends.local.state.read_regular", raising(os_error(errno.EIO)))
    with pytest.raises(LabError, match=r"state directory .* cannot be used: Input/output error"):
        has_stopped(environment)


def test_locks_are_shared_for_use_and_exclusive_for_change() -> None:
    alone = pytest.raises(LabError, match=r"is using the .*'demo'")
    with LOCAL("demo", shared=True), LOCAL("demo", shared=True), alone, LOCAL("demo"):
        pass
    wait = pytest.raises(LabError, match="wait until that command ends")
    with LOCAL("demo"), LOCAL("other"), COMPOSE("demo"), wait, LOCAL("demo", shared=True):
        pass


def test_a_run_is_submitted_while_another_command_uses_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = a_dead_environment()
    monkeypatch.setattr(LocalEnvironment, "is_up", True)
    with LOCAL("mnist", shared=True):
        environment.submit(REQUEST)
    assert [request.run_id for request in environment.runs()] == ["r1"]


def test_lock_on_a_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.touch()
    opened = Path.open

    def refuse(number: int) -> None:
        def refusing(self: Path, mode: str = "r") -> Any:
            if "a" in mode:
                raise OSError(number, os.strerror(number), str(self))
            return opened(self, mode)

        monkeypatch.setattr(Path, "open", refusing)

    refuse(errno.EROFS)
    with locking.locked(path, "it"), pytest.raises(Busy), locking.locked(path, "it"):
        pass
    refuse(errno.EACCES)
    with pytest.raises(PermissionError), locking.locked(path, "it"):
        pass


def test_a_lock_that_its_holder_removes(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    flock = fcntl.flock

    def removed(*given: Any) -> None:  # between the opening and the locking of the file
        path.unlink()
        flock(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", removed)
        with pytest.raises(Busy), locking.locked(path, "it"):
            pass
    with locking.locked(path, "it"), pytest.raises(Busy), locking.locked(path, "it"):
        pass


def refused() -> AbstractContextManager[Any]:
    message = r"another command is using .*'mnist'.*; wait until that command"
    return pytest.raises(LabError, match=message)


def test_compose_gets_the_lock_of_its_boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    locks: list[object] = []

    def compose(*given: object) -> None:
        locks.append(given[-1])
        raise LabError("it did not come up")

    module = "lab.backends.compose.boot"
    for name, fake in (
        *(("Compose", compose), ("list_resources", lambda *_: NO_RESOURCES)),
        ("remove", lambda *_, **__: None),
    ):
        monkeypatch.setattr(f"{module}.{name}", fake)
    backend = ComposeBackend()
    backend._engine = an_engine()
    with pytest.raises(LabError, match="did not come up"):
        backend.up(PLAN, root=tmp_path)
    assert isinstance(locks[0], int)


def test_compose_keeps_the_lock_of_a_killed_client(tmp_path: Path) -> None:
    fake = tmp_path / "docker"
    fake.write_text(f"#!/bin/sh\necho there\nread x < {tmp_path}/go\n")
    fake.chmod(0o755)
    os.mkfifo(tmp_path / "go")
    helper = (
        "import sys\n"
        "from pathlib import Path\n"
        "from lab.backends.compose import cli\n"
        "from lab.backends.state import lock_environment\n"
        "from lab.base.log import shown_by\n"
        f"cli.docker = lambda: {str(fake)!r}\n"
        "with lock_environment('compose', 'mnist') as lock, shown_by(print):\n"
        "    cli.Compose('mnist', Path('f'), Path('/'), lock).up()\n"
    )
    command = [sys.executable, "-u", "-c", helper]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "there\n"
        process.kill()
    with refused(), COMPOSE("mnist"):
        pass
    (tmp_path / "go").write_text("go\n")
    wait_for(can_be_locked, "the end of compose")


def can_be_locked() -> bool:
    try:
        with COMPOSE("mnist"):
            return True
    except LabError:
        return False


def test_removal_by_another_command_is_accepted() -> None:
    environment = a_dead_environment()
    environment.down()
    environment.down()
    anew = processes.StateDir.of("mnist")
    record = replace(environment._record, process=ProcessHandle.of(os.getpid()))
    anew.runs.mkdir(parents=True)
    anew.write(record)
    environment.down()
    assert anew.read() == record


def test_a_boot_removes_only_unfinished_runs_of_a_kept_volume(
    tmp_path: Path, notices: list[str]
) -> None:
    state_dir = EnvironmentDir(tmp_path / "mnist")
    volume = Volume(state_dir.runs)
    for run_id in ("damaged", "ended", "unfinished"):
        submit(volume, replace(REQUEST, run_id=run_id))
        if run_id != "unfinished":
            for task in REQUEST.tasks():
                end(volume, run_id, task, State.SUCCEEDED, exit_code=0)
    volume.request("damaged").write_text("{")
    state_dir.kept.touch()
    state_dir.clear()
    why = "is kept but was not collected: the run's request is damaged"
    assert notices == [f"{volume.run('damaged')} {why}"]
    for run_id in ("damaged", "ended", "unfinished"):
        stays = run_id != "unfinished"
        assert (volume.run(run_id).is_dir(), volume.request(run_id).is_file()) == (stays, stays)


def test_leftovers_of_processes() -> None:
    environment = a_dead_environment()
    living = processes.StateDir.of("living")
    record = processes.StateDir.of("mnist").read()
    assert record is not None
    living.write(replace(record, project="living", process=ProcessHandle.of(os.getpid())))
    found = LocalBackend().list_environments()
    assert [(each.project, each.is_up) for each in found] == [("living", True), ("mnist", False)]
    assert [each.project for each in LocalBackend().all()] == ["living"]
    environment.down()
    assert [each.project for each in LocalBackend().list_environments()] == ["living"]
    assert not processes.StateDir.of("mnist").directory.exists()


def labelled(project: str) -> SimpleNamespace:
    labels = {"lab.project": project}
    return SimpleNamespace(id=project, name=project, attrs={"Labels": labels})


def test_leftovers_of_containers() -> None:
    stopped = copy.deepcopy(inspected(Status="exited"))
    stopped["Config"]["Labels"]["lab.project"] = "stopped"
    backend = ComposeBackend()
    backend._engine = an_engine(inspected(Status="running"), stopped)
    client: Any = backend._engine.client()
    client.networks = SimpleNamespace(list=lambda **_: [labelled("half"), labelled("mnist")])
    client.volumes = SimpleNamespace(list=lambda **_: [labelled("volume"), labelled("mnist")])
    assert [each.project for each in backend.all()] == ["mnist"]
    found = [(each.project, each.is_up) for each in backend.list_environments()]
    left = [(name, False) for name in ("stopped", "volume")]
    assert found == [("half", False), ("mnist", True), *left]


def test_an_environment_without_a_volume_has_no_runs() -> None:
    environment = ComposeEnvironment(an_engine(), "mnist")
    assert (environment.runs(), environment.collected()) == ([], {})


@pytest.fixture
def up(host: Host) -> FakeEnvironment:
    return host.environment


@pytest.fixture
def left(host: Host) -> FakeEnvironment:
    """What is left of another environment than the one that is up."""
    found = FakeEnvironment(host.folder / "left", project="left", is_left=True)
    host.backend.others = [found]
    return found


def test_ps_shows_leftovers(left: FakeEnvironment, cli: Cli) -> None:
    left.root.rmdir()
    left.root.touch()  # nothing can read its volume
    rows = json.loads(cli("ps", "--json").out)
    assert [(row["name"], row["runs"]) for row in rows] == [("mnist", 0), ("left", None)]
    assert "?" in cli("ps").out


def test_up_does_not_reuse_a_half_booted_environment(
    up: FakeEnvironment, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    cli("up", "--gpus", "none")
    half = [replace(task, alive=False, detail="created") for task in up.tasks()]
    monkeypatch.setattr(up, "tasks", lambda: half)
    err = cli("up", "--gpus", "none", code=1).err
    assert "error: ps-0 of environment mnist is not up: created; see `lab ps mnist`" in err


@pytest.mark.parametrize(
    ("arguments", "job", "folder", "code", "removed"),
    [
        ("--all --yes", "worker", "", 0, ["mnist", "left"]),
        ("", "chief", "", 0, ["mnist"]),  # its config has changed
        ("", "worker", "{here}", 0, ["mnist"]),
        ("", "worker", "/home/\x1b[31mada", 2, []),
        ("mnist", "worker", "/home/\x1b[31mada", 0, ["mnist"]),
    ],
)
def test_down_removes_leftovers_too_but_no_other_folders_environment(
    up: FakeEnvironment,
    left: FakeEnvironment,
    cli: Cli,
    arguments: str,
    job: str,
    folder: str,
    code: int,
    removed: list[str],
) -> None:
    Path("cluster.yaml").write_text(CLUSTER.replace("worker", job))
    up.folder = folder.format(here=Path.cwd())
    output = cli("down", *arguments.split(), code=code)
    assert [each.project for each in (up, left) if each.is_down] == removed
    if code:
        assert output.err == (
            "error: environment 'mnist' (local) was booted from /home/\\x1b[31mada, not from here;"
            " run this command there, or boot one here with `lab up`\n"
        )
        assert cli("logs", code=2).err == output.err
        assert cli("ps").out.splitlines()[2].endswith("/home/\\x1b[31mada")


def test_a_container_that_is_being_removed_is_waited_for() -> None:
    conflict = APIError("409 Conflict (removal of container 1 is already in progress)")
    busy = Mock(status="exited", **{"remove.side_effect": conflict})
    cleanup._remove(busy)
    busy.wait.assert_called_once_with(condition="removed", timeout=ANY)
    busy.remove.side_effect = APIError("500 (it is stuck)")
    with pytest.raises(APIError, match="it is stuck"):
        cleanup._remove(busy)
