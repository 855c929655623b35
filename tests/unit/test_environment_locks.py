"""Environments that several commands use at once, and leftovers of killed commands."""

from __future__ import annotations

import copy
import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError

from lab.backends import state as locking
from lab.backends.compose import ComposeBackend, cleanup
from lab.backends.compose.cleanup import NO_RESOURCES
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.local import LocalBackend
from lab.backends.local import state as processes
from lab.backends.local.environment import LocalEnvironment
from lab.backends.local.state import EnvironmentRecord, Isolation, TaskRecord
from lab.backends.process import ProcessHandle
from lab.backends.state import Busy, lock_environment
from lab.cli import main
from lab.config import load_cluster
from lab.errors import LabError
from lab.run.lifecycle import has_stopped
from lab.task.protocol import Request, RunSpec
from tests.support.agents import wait_for
from tests.support.cli import CLUSTER
from tests.support.containers import an_engine, inspected
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment

REQUEST = Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec())
LOCAL, COMPOSE = partial(lock_environment, "local"), partial(lock_environment, "compose")
NOBODY = ProcessHandle(pid=2**22 + 1, started="1", boot="never")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))


def quiet(_line: str) -> None:
    """An environment without agents."""


def a_dead_environment(project: str = "mnist") -> LocalEnvironment:
    """The leftovers of a killed supervisor."""
    place = processes.state_dir(project)
    place.runs.mkdir(parents=True)
    record = EnvironmentRecord(
        project, "abc", "/home/ada", Isolation.PROCESSES, NOBODY, "python", (), ()
    )
    place.write(record)
    return LocalEnvironment(place, record)


def test_a_read_error_is_not_the_end_of_the_agents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = TaskRecord("worker-0", "tf1", "127.0.0.1:1", (), None, {})
    record = replace(a_dead_environment()._record, tasks=(agent,))
    environment = LocalEnvironment(processes.state_dir("mnist"), record)
    assert has_stopped(environment)

    def fail(_path: Path) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("lab.backends.local.state.read_regular", fail)
    with pytest.raises(LabError, match=r"state directory .* cannot be used: Input/output error"):
        has_stopped(environment)


# ---- One command at a time


@pytest.mark.parametrize("locked", [LOCAL, COMPOSE])
def test_locks_are_shared_for_use_and_exclusive_for_change(locked: Any) -> None:
    alone = pytest.raises(LabError, match=r"uses the .*'demo'")
    with locked("demo", shared=True), locked("demo", shared=True), alone, locked("demo"):
        pass
    with locked("demo"):
        with (
            pytest.raises(LabError, match="wait until that command ends"),
            locked("demo", shared=True),
        ):
            pass
        with locked("other"):
            pass


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
    flock = locking.fcntl.flock

    def removed(*given: Any) -> None:  # between the opening and the locking of the file
        path.unlink()
        flock(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locking.fcntl, "flock", removed)
        with pytest.raises(Busy), locking.locked(path, "it"):
            pass
    with locking.locked(path, "it"), pytest.raises(Busy), locking.locked(path, "it"):
        pass


def refused() -> AbstractContextManager[Any]:
    message = r"another command uses .*'mnist'.* now; wait until that command"
    return pytest.raises(LabError, match=message)


def test_a_locked_environment_of_processes_is_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = a_dead_environment()
    monkeypatch.setattr(LocalEnvironment, "is_up", True)
    with LOCAL("mnist"):
        with refused():
            LocalBackend().up(PLAN, root=tmp_path, notify=quiet)
        with refused():
            environment.down(quiet)
        with refused():
            environment.submit(REQUEST)
    with LOCAL("mnist", shared=True), refused():
        environment.down(quiet)
    environment.submit(REQUEST)
    assert [request.run_id for request in environment.runs()] == ["r1"]


def test_a_locked_environment_of_containers_is_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.backends.compose.backend.docker", lambda: "docker")
    monkeypatch.setattr("lab.backends.compose.backend.compose_version", lambda: "2.40.3")
    backend, environment = ComposeBackend(), ComposeEnvironment(an_engine(inspected()), "mnist")
    locks: list[object] = []

    def compose(*args: object) -> None:
        locks.append(args[-1])
        raise LabError("it did not come up")

    monkeypatch.setattr("lab.backends.compose.backend.Compose", compose)
    monkeypatch.setattr("lab.backends.compose.backend.list_resources", lambda *_: NO_RESOURCES)
    monkeypatch.setattr("lab.backends.compose.backend.remove", lambda *_, **__: None)
    backend._engine = an_engine()
    with pytest.raises(LabError, match="did not come up"):
        backend.up(PLAN, root=tmp_path, notify=quiet)
    assert isinstance(locks[0], int)  # compose holds this lock, if this process is killed
    with COMPOSE("mnist"):
        with refused():
            backend.up(PLAN, root=tmp_path, notify=quiet)
        with refused():
            environment.down(quiet)
        with refused():
            environment.submit(REQUEST)


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
        f"cli.docker = lambda: {str(fake)!r}\n"
        "with lock_environment('compose', 'mnist') as lock:\n"
        "    cli.Compose('mnist', Path('f'), Path('/'), lock).up(lambda line: print(line))\n"
    )
    command = [sys.executable, "-u", "-c", helper]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
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


def needed() -> None:
    raise LabError("it is needed")


def test_a_needed_one_is_not_removed(tmp_path: Path) -> None:
    local = a_dead_environment()
    compose = ComposeEnvironment(an_engine(inspected()), "mnist")
    for environment, locked in ((local, LOCAL), (compose, COMPOSE)):

        def alone(locked: Any = locked) -> None:
            with refused(), locked("mnist", shared=True):
                pass
            needed()

        with pytest.raises(LabError, match="it is needed"):
            environment.down(quiet, unless=alone)
    assert processes.state_dir("mnist").directory.exists()


def test_removal_by_another_command_is_accepted() -> None:
    environment = a_dead_environment()
    environment.down(quiet)
    environment.down(quiet)
    anew = processes.state_dir("mnist")
    record = replace(environment._record, process=ProcessHandle.of(os.getpid()))
    anew.runs.mkdir(parents=True)
    anew.write(record)
    environment.down(quiet)
    assert anew.read() == record


# ---- Leftovers


def test_leftovers_of_processes() -> None:
    environment = a_dead_environment()
    living = processes.state_dir("living")
    record = processes.state_dir("mnist").read()
    assert record is not None
    living.write(replace(record, project="living", process=ProcessHandle.of(os.getpid())))
    (found,) = LocalBackend().find_orphans()
    assert found.project == "mnist"
    assert [each.project for each in LocalBackend().all()] == ["living"]
    environment.down(quiet)
    assert LocalBackend().find_orphans() == []
    assert not processes.state_dir("mnist").directory.exists()


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
    assert [each.project for each in backend.find_orphans()] == ["half", "stopped", "volume"]


def test_an_environment_without_a_volume_has_no_runs() -> None:
    assert ComposeEnvironment(an_engine(), "mnist").runs() == []


# ---- The commands


@dataclass
class Leaving(FakeBackend):
    """A backend with something that is left."""

    left: FakeEnvironment | None = None

    def find_orphans(self) -> list[FakeEnvironment]:
        return [self.left] if self.left else []


class Unreadable(FakeEnvironment):
    """An environment whose volume has no reader left."""

    def runs(self) -> list[Request]:
        raise LabError("there is no image left")


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Leaving]:
    """One environment is up, and something is left of another; in a project's directory."""
    (tmp_path / "volume").mkdir()
    (tmp_path / "left").mkdir()
    made = Leaving("local", FakeEnvironment(tmp_path / "volume"))
    made.left = FakeEnvironment(tmp_path / "left", project="left")
    for name in ("cli.commands.ls", "cli.commands.up", "service.environments"):
        monkeypatch.setattr(f"lab.{name}.backends", lambda: [made])
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    monkeypatch.chdir(tmp_path)
    yield made


def up(backend: Leaving) -> FakeEnvironment:
    assert backend.environment is not None
    return backend.environment


def left(backend: Leaving) -> FakeEnvironment:
    assert backend.left is not None
    return backend.left


def test_ls_shows_leftovers(backend: Leaving, capfd: pytest.CaptureFixture[str]) -> None:
    backend.left = Unreadable(left(backend).root, project="left")
    assert main(["ls", "--json"]) == 0
    rows = json.loads(capfd.readouterr().out)
    assert [(row["name"], row["runs"]) for row in rows] == [("mnist", 0), ("left", None)]
    assert main(["ls"]) == 0
    assert "?" in capfd.readouterr().out


def test_up_does_not_reuse_a_half_booted_environment(
    backend: Leaving, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    up(backend).cluster_sha256 = load_cluster(Path("cluster.yaml")).sha256
    assert main(["up", "--gpus", "none"]) == 0
    half = [replace(task, alive=False, detail="created") for task in up(backend).tasks()]
    monkeypatch.setattr(up(backend), "tasks", lambda: half)
    capfd.readouterr()
    assert main(["up", "--gpus", "none"]) == 1
    err = capfd.readouterr().err
    assert "error: ps-0 of environment mnist is not up: created; see `lab ps`" in err


def test_down_all_removes_leftovers_too(backend: Leaving) -> None:
    assert main(["down", "--all", "--yes"]) == 0
    assert up(backend).is_down
    assert left(backend).is_down


def test_down_removes_what_the_config_does_not_name(backend: Leaving) -> None:
    Path("cluster.yaml").write_text(CLUSTER.replace("worker", "chief"))
    assert main(["down"]) == 0
    assert up(backend).is_down
    assert not left(backend).is_down


def test_down_without_a_name_keeps_another_folders_environment(
    backend: Leaving, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    up(backend).folder = "/home/\x1b[31mada"
    assert main(["down"]) == 2
    assert capfd.readouterr().err == (
        "error: environment 'mnist' (local) was booted from /home/\\x1b[31mada, not from here;"
        " run the command there, or name the environment: `lab down mnist`\n"
    )
    assert not up(backend).is_down
    assert main(["down", "mnist"]) == 0
    assert up(backend).is_down


def test_down_in_its_own_folder(backend: Leaving, tmp_path: Path) -> None:
    up(backend).folder = str(tmp_path)
    assert main(["down"]) == 0
    assert up(backend).is_down


class BusyContainer:
    """One that another command removes already."""

    status = "exited"

    def __init__(self, arguments: str) -> None:
        self.words = arguments
        self.waited: list[str] = []

    def remove(self, **_: object) -> None:
        raise APIError(self.words)

    def wait(self, *, condition: str, timeout: int) -> None:
        assert timeout > 0
        self.waited.append(condition)


def test_a_container_that_is_being_removed_is_waited_for() -> None:
    busy = BusyContainer("409 Conflict (removal of container 1 is already in progress)")
    cleanup._remove(busy)  # type: ignore[arg-type]
    assert busy.waited == ["removed"]
    with pytest.raises(APIError, match="it is stuck"):
        cleanup._remove(BusyContainer("500 (it is stuck)"))  # type: ignore[arg-type]
