"""Boot, reset and removal of a class, with an engine and a JupyterHub that only record."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.backends import gpu_record
from lab.backends.gpu_record import CLASS, Holder, hold_gpus
from lab.backends.process import ProcessHandle
from lab.backends.state import Busy, locked
from lab.classroom import containers, environment
from lab.classroom.environment import down, reset, up
from lab.classroom.state import ClassDir
from lab.errors import InputError, LabError
from tests.golden.boxes import uuid_of
from tests.support.classes import a_plan, created, stored

PLAN = a_plan(("ada", "bob"), 1)
GPUS = [uuid_of(0), uuid_of(1)]


def process(code: str = "import time; time.sleep(600)") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code])


@dataclass
class World:
    """What the engine and JupyterHub have, and the calls so far."""

    log: list[str] = field(default_factory=list)
    objects: set[str] = field(default_factory=set)
    fails: str = ""
    error: BaseException = field(default_factory=lambda: LabError("no space"))
    hubs: list[subprocess.Popen[bytes]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    containers: list[Any] = field(default_factory=list)
    ready: bool = True
    seconds: float = 0.0

    def do(self, step: str) -> None:
        self.log.append(step)
        if step == self.fails:
            raise self.error

    def adds(self, step: str) -> Callable[..., None]:
        def call(*_: object, **__: object) -> None:
            self.objects.add(step)  # a part may be left by a step that fails
            self.do(step)

        return call

    def removes(self, step: str, *steps: str) -> Callable[..., None]:
        def call(*_: object) -> None:
            self.do(step)
            self.objects -= set(steps)

        return call

    # JupyterHub

    def start_hub(self, *_: object, **__: object) -> subprocess.Popen[bytes]:
        self.do("start hub")
        self.hubs.append(process())
        return self.hubs[-1]

    def answers(self) -> bool:
        self.do("answers")
        return True

    def users(self) -> list[dict[str, Any]]:
        self.do("users")
        found = [{"name": seat, "servers": {"": each}} for seat, each in self.servers.items()]
        if self.ready:
            for each in self.servers.values():
                each.update(ready=True, pending=None)
        return [*found, {"name": "teacher", "servers": {}}]

    def start(self, seat: str) -> None:
        self.do(f"start {seat}")
        self.servers[seat] = {"ready": False, "pending": "spawn"}

    def stop(self, seat: str) -> None:
        self.do(f"stop {seat}")
        self.servers.pop(seat, None)

    # Work

    def save(self, seat: str, archive: zipfile.ZipFile, folder: str) -> int:
        self.do(f"save {seat}")
        archive.writestr(f"{folder}/mine.txt", b"mine")
        return 2 if seat == "bob" else 0


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    found = World()
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv(gpu_record.VARIABLE, str(tmp_path / "gpus"))
    engine = SimpleNamespace(containers=lambda *labels: found.containers)
    for name, value in {
        "Engine": lambda: engine,
        "create_networks": found.adds("networks"),
        "create_volumes": found.adds("volumes"),
        "start_proxy": found.adds("proxy"),
        "remove_containers": found.removes("remove containers", "proxy"),
        "remove_all": found.removes("remove all", "networks", "volumes", "proxy"),
        "remove_volume": found.removes("remove volume"),
        "create_volume": lambda *_: found.do("create volume"),
        "seat_containers": lambda *_: found.containers,
        "contents": lambda *_: {"container": 4, "network": 1, "volume": 0},
    }.items():
        monkeypatch.setattr(containers, name, value)
    for check in ("check_seat_gpus", "check_class_gpus"):
        monkeypatch.setattr(environment, check, found.removes(check))
    monkeypatch.setattr(environment, "hub_api", lambda folder: found)
    use_popen(monkeypatch, found.start_hub)
    monkeypatch.setattr(
        containers,
        "SeatVolume",
        lambda *given: SimpleNamespace(
            save=lambda archive, folder: found.save(given[2], archive, folder)
        ),
    )
    clock = SimpleNamespace(
        time=time.time, monotonic=lambda: found.seconds, sleep=lambda seconds: tick(found)
    )
    monkeypatch.setattr(environment, "time", clock)
    yield found
    for hub in found.hubs:
        hub.kill()
        hub.wait()


def use_popen(patch: pytest.MonkeyPatch, popen: Callable[..., Any]) -> None:
    """Only the module under test starts its processes by this function."""
    names = {name: getattr(subprocess, name) for name in ("DEVNULL", "STDOUT")}
    patch.setattr(environment, "subprocess", SimpleNamespace(Popen=popen, **names))


def tick(world: World) -> None:
    """A second of the module under test, in which a process that was signalled can end."""
    world.seconds += 1.0
    for hub in world.hubs:
        hub.poll()


def boot(world: World) -> ClassDir:
    up(stored(PLAN), world.lines.append)
    return ClassDir("w")


def record() -> dict[str, dict[str, Any]]:
    """The entries of the GPU record, by name."""
    found = map(json.loads, (path.read_text() for path in gpu_record.directory().glob("*.json")))
    return {each["project"]: each for each in found}


def take(name: str, *gpus: str, backend: str = "local", where: str = "/p") -> Any:
    own = ProcessHandle.of(os.getpid())
    return hold_gpus(
        Holder(name, backend, where, "/p", gpus, 1.0, own), share=False, notify=lambda _line: None
    )


# ---- up


def test_a_class_boots_in_order(world: World) -> None:
    folder = boot(world)
    assert world.log[:5] == ["networks", "volumes", "proxy", "start hub", "answers"]
    assert world.log[5:7] == ["start ada", "start bob"]
    assert world.lines == [
        "class w: JupyterHub is up",
        "ada: ready (1 of 2)",
        "bob: ready (2 of 2)",
    ]
    assert folder.is_up
    assert folder.stored() == stored(PLAN)
    assert not any(line.startswith("remove") for line in world.log)


def test_the_gpus_are_held_while_jupyterhub_runs(world: World) -> None:
    folder = boot(world)
    entry = record()["w"]
    assert (entry["backend"], entry["gpus"]) == (CLASS, GPUS)
    assert entry["process"]["pid"] == world.hubs[0].pid
    with pytest.raises(LabError) as caught, take("mnist", GPUS[1]):
        pass
    assert re.fullmatch(
        rf"GPU {GPUS[1]} is held by environment 'w' \(class\) of \S+ since \d{{4}}-\d\d-\d\d "
        r"\d\d:\d\d; wait for `lab class down`, name other GPUs in the config "
        r"\(`gpus: \[4, 5\]`\), or add --share",
        str(caught.value),
    )
    with take("other", uuid_of(3)):
        pass
    world.hubs[0].kill()
    world.hubs[0].wait()
    assert not folder.is_up
    with take("mnist", GPUS[1]):
        pass


def test_a_gpu_of_another_environment_is_refused(world: World) -> None:
    with take("mnist", GPUS[0]):
        with pytest.raises(LabError) as caught:
            boot(world)
        assert str(caught.value).endswith("; wait for `lab down mnist`")
        assert set(record()) == {"mnist"}
    nothing_is_left(world)
    assert "proxy" not in world.log


def nothing_is_left(world: World) -> None:
    assert world.objects == set()
    assert not ClassDir("w").path.exists()
    assert "w" not in record()
    assert all(hub.wait(10) is not None for hub in world.hubs)


STEPS = [
    "networks", "volumes", "proxy", "start hub", "answers", "start ada", "start bob", "users",
]  # fmt: skip
ERRORS = [LabError("no space"), OSError(28, "No space left", "/x"), KeyboardInterrupt()]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("error", ERRORS, ids=["LabError", "OSError", "KeyboardInterrupt"])
def test_a_boot_that_fails_leaves_nothing(step: str, error: BaseException, world: World) -> None:
    world.fails, world.error = step, error
    with pytest.raises(type(error)) as caught:
        boot(world)
    assert caught.value is error
    assert "remove all" in world.log
    nothing_is_left(world)
    world.fails = ""
    assert boot(world).is_up  # and it can be booted afterwards


def test_a_full_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(folder: ClassDir, what: object) -> None:
        folder.path.mkdir(parents=True)
        (folder.path / "tokens.json").touch()
        raise OSError(28, "No space left", "/x")

    monkeypatch.setattr(ClassDir, "create", create)
    with pytest.raises(OSError, match="No space left"):
        boot(world)
    nothing_is_left(world)


def test_an_engine_that_also_refuses_the_removal(world: World) -> None:
    world.fails = "proxy"
    removes = containers.remove_all

    def refuse(*given: Any) -> None:
        raise LabError("removing w: no answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(containers, "remove_all", refuse)
        with pytest.raises(LabError, match="no space"):
            boot(world)
    assert world.lines[-2:] == [
        "warning: parts of the class 'w' are left: removing w: no answer",
        "remove them with `lab class down`",
    ]
    assert ClassDir("w").path.exists()  # so that `lab class down` finds it
    assert containers.remove_all is removes
    down(ClassDir("w"), ClassDir("w").path.parent / "w.zip", world.lines.append)
    nothing_is_left(world)


def test_a_class_that_is_up_is_refused(world: World) -> None:
    folder = boot(world)
    before, calls = {path.name: path.read_bytes() for path in folder.path.iterdir()}, len(world.log)
    with pytest.raises(InputError) as caught:
        up(stored(a_plan(("cy",))), world.lines.append)
    assert str(caught.value) == (
        "the class 'w' is up already; see it with `lab class status`, or remove it with "
        "`lab class down`"
    )
    assert len(world.log) == calls
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
    assert folder.is_up


def test_two_commands_at_once(world: World) -> None:
    folder = boot(world)
    with locked(folder.lock, "x"):
        for action in (
            lambda: up(stored(PLAN), world.lines.append),
            lambda: down(folder, Path("no.zip"), world.lines.append),
            lambda: reset(folder, "ada", world.lines.append),
        ):
            with pytest.raises(Busy, match="another command uses the class 'w' now"):
                action()


# ---- up, after JupyterHub ended


def ended(world: World) -> ClassDir:
    folder = boot(world)
    world.hubs[0].kill()
    world.hubs[0].wait()
    world.log.clear()
    world.lines.clear()
    world.servers.clear()
    return folder


def test_a_class_whose_jupyterhub_ended_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ended(world)
    tokens = folder.tokens()
    attach = world.adds("attach storage")
    monkeypatch.setattr(containers.Containers, "attach_storage", attach)
    up(stored(a_plan(("cy",))), world.lines.append)  # another plan: its own one holds
    assert world.lines[0] == "class w: going on where it ended"
    assert world.log[:3] == ["remove containers", "attach storage", "proxy"]
    assert not {"networks", "volumes", "remove all"} & set(world.log)
    assert world.lines[-1] == "bob: ready (2 of 2)"
    assert (folder.tokens(), folder.stored()) == (tokens, stored(PLAN))
    assert folder.is_up
    assert record()["w"]["process"]["pid"] == world.hubs[1].pid


@pytest.mark.parametrize("step", ["remove containers", "proxy", "start hub", "start bob", "users"])
def test_a_continuation_that_fails_keeps_the_work(step: str, world: World) -> None:
    folder = ended(world)
    before = record()
    world.fails = step
    with pytest.raises(LabError, match="no space"):
        up(stored(PLAN), world.lines.append)
    assert {"networks", "volumes"} <= world.objects
    assert "remove all" not in world.log
    assert folder.stored() == stored(PLAN)
    assert not folder.is_up  # no JupyterHub without the record of its GPUs
    assert record() == before
    world.fails = ""
    up(stored(PLAN), world.lines.append)
    assert folder.is_up


# ---- Waiting


def test_jupyterhub_that_ends_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **options: Any) -> subprocess.Popen[bytes]:
        options["stdout"].write(b"starting\n[E] port\x1b[2J in use\n")
        return world.start_hub()

    use_popen(monkeypatch, start)

    def answers() -> bool:
        world.hubs[0].kill()
        world.hubs[0].wait()
        return False

    monkeypatch.setattr(world, "answers", answers)
    with pytest.raises(LabError) as caught:
        boot(world)
    assert str(caught.value) == r"JupyterHub ended: starting [E] port\x1b[2J in use"
    nothing_is_left(world)


def test_jupyterhub_that_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "answers", lambda: False)
    with pytest.raises(LabError, match="JupyterHub is not ready after 60 s: "):
        boot(world)
    nothing_is_left(world)


def test_a_seat_that_does_not_get_ready(world: World) -> None:
    world.ready = False
    with pytest.raises(LabError, match="not ready after 180 s: ada, bob"):
        boot(world)
    nothing_is_left(world)


@pytest.mark.parametrize(
    "log", ["", "[I 2026 x] fine\n", "[E 2026 x] no such \x1bGPU\nTraceback\n"]
)
def test_a_seat_that_does_not_start(
    log: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(seat: str) -> None:
        ClassDir("w").log.write_text(log)
        world.servers[seat] = {"ready": False, "pending": None}

    monkeypatch.setattr(world, "start", start)
    world.ready = False
    reason = r"no such \x1bGPU" if "[E" in log else "JupyterHub logged no error"
    with pytest.raises(LabError) as caught:
        boot(world)
    assert str(caught.value) == f"ada does not start: {reason}"
    nothing_is_left(world)


def test_many_seats_start_a_few_at_a_time(world: World) -> None:
    most = 0
    start = world.start

    def counted(seat: str) -> None:
        nonlocal most
        start(seat)
        most = max(most, sum(each["pending"] == "spawn" for each in world.servers.values()))

    world.start = counted  # type: ignore[method-assign]
    up(stored(a_plan(30)), world.lines.append)
    assert most == 4
    assert world.lines[-1].endswith(": ready (30 of 30)")


# ---- down


def test_down_collects_the_work_and_removes_the_class(world: World, tmp_path: Path) -> None:
    folder = boot(world)
    folder.copies.mkdir()
    (folder.copies / "ada-20261201-090000.zip").write_bytes(b"earlier")
    world.log.clear()
    world.lines.clear()
    down(folder, tmp_path / "w.zip", world.lines.append)
    assert world.log == [
        "save ada", "save bob", "remove containers", "remove all", "check_class_gpus",
    ]  # fmt: skip
    assert world.lines == [
        "ada: collected (1 of 2)",
        "bob: not in the archive: 2 (links, special files, or beyond the limit of size)",
        "bob: collected (2 of 2)",
        "class w: removed 4 containers, 1 network, 0 volumes; the work of its seats is in "
        f"{tmp_path}/w.zip",
    ]
    with zipfile.ZipFile(tmp_path / "w.zip") as archive:
        assert archive.namelist() == [
            "resets/ada-20261201-090000.zip",
            "ada/mine.txt",
            "bob/mine.txt",
            "gradebook.csv",
        ]
        assert archive.read("gradebook.csv").startswith(b"seat,resets,unreadable,imported,async ")
        assert b"\nada,1,0,0,,\nbob,0,0,0,,\n" in archive.read("gradebook.csv")
    nothing_is_left(world)
    assert [path.name for path in (tmp_path / "state").rglob("*")] == ["classes"]


def test_down_counts_the_environments_of_the_queue(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = boot(world)
    monkeypatch.setattr(environment, "remove_environments", lambda _folder: 2)
    down(folder, tmp_path / "w.zip", world.lines.append)
    assert ": removed 4 containers, 1 network, 0 volumes, 2 queue environments; " in world.lines[-1]


def test_a_process_that_still_uses_a_gpu_is_reported_after_the_end(
    world: World, tmp_path: Path
) -> None:
    folder = boot(world)
    world.fails = "check_class_gpus"
    with pytest.raises(LabError, match="no space"):
        down(folder, tmp_path / "w.zip", world.lines.append)
    assert zipfile.is_zipfile(tmp_path / "w.zip")
    nothing_is_left(world)


def test_passwords_that_cannot_be_removed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = boot(world)
    monkeypatch.setattr(environment.shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(LabError) as caught:
        down(folder, tmp_path / "w.zip", world.lines.append)
    assert str(caught.value) == (
        f"{folder.path} is left, with the passwords of the class; run `rm -r {folder.path}`"
    )


def test_an_archive_that_exists_is_not_touched(world: World, tmp_path: Path) -> None:
    folder = boot(world)
    world.log.clear()
    (tmp_path / "w.zip").write_bytes(b"precious")
    with pytest.raises(InputError) as caught:
        down(folder, tmp_path / "w.zip", world.lines.append)
    assert str(caught.value) == f"{tmp_path}/w.zip exists already; choose another file"
    assert (tmp_path / "w.zip").read_bytes() == b"precious"
    assert world.log == []
    assert folder.is_up


@pytest.mark.parametrize("error", ERRORS, ids=["LabError", "OSError", "KeyboardInterrupt"])
def test_nothing_is_removed_if_the_work_cannot_be_collected(
    error: BaseException, world: World, tmp_path: Path
) -> None:
    folder = boot(world)
    before = record()
    world.fails, world.error = "save bob", error
    with pytest.raises(type(error)):
        down(folder, tmp_path / "w.zip", world.lines.append)
    assert not (tmp_path / "w.zip").exists()
    assert world.objects == {"networks", "volumes", "proxy"}
    assert folder.is_up
    assert record() == before
    with pytest.raises(FileNotFoundError):
        down(folder, tmp_path / "no" / "w.zip", world.lines.append)
    assert folder.is_up


def test_a_class_that_is_not_there(world: World) -> None:
    for action in (
        lambda: down(ClassDir("no"), Path("no.zip"), world.lines.append),
        lambda: reset(ClassDir("no"), "ada", world.lines.append),
    ):
        with pytest.raises(InputError) as caught:
            action()
        assert str(caught.value) == "no class 'no' is up; start it with `lab class up`"
    assert world.log == []


def test_a_jupyterhub_that_ignores_sigterm_is_killed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print(flush=True); time.sleep(600)"
    )
    hub = subprocess_of(code)
    use_popen(monkeypatch, lambda *_, **__: hub)
    folder = boot(world)
    world.hubs.append(hub)
    assert world.lines
    down(folder, tmp_path / "w.zip", world.lines.append)
    assert hub.wait(10) == -signal.SIGKILL


def subprocess_of(code: str) -> subprocess.Popen[bytes]:
    found = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert found.stdout is not None
    found.stdout.readline()
    return found


# ---- The queue


@pytest.fixture
def queue(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A class whose seats have runs in the queue; each step is in the log."""

    def save_runs(
        _folder: ClassDir, seat: str, archive: zipfile.ZipFile, target: str, _notify: object
    ) -> None:
        world.do(f"save runs of {seat}")
        archive.writestr(f"{target}/r/run.json", b"{}")

    def end_environments(_folder: ClassDir, seats: list[str], *, keep: bool) -> None:
        world.do(f"{'end' if keep else 'remove'} runs of {' '.join(seats)}")

    monkeypatch.setattr(environment, "save_runs", save_runs)
    monkeypatch.setattr(environment, "end_environments", end_environments)
    monkeypatch.setattr(environment, "end_all_runs", lambda *_: world.do("end all runs"))
    monkeypatch.setattr(environment, "remove_environments", lambda _: world.do("remove runs"))
    return world


def test_runs_are_collected_before_they_are_removed(queue: World, tmp_path: Path) -> None:
    folder = boot(queue)
    queue.log.clear()
    reset(folder, "ada", queue.lines.append)
    assert queue.log[:8] == [
        "end runs of ada", "stop ada", "users", "remove containers", "save runs of ada", "save ada",
        "remove runs of ada", "remove volume",
    ]  # fmt: skip
    queue.log.clear()
    down(folder, tmp_path / "w.zip", queue.lines.append)
    assert queue.log[:7] == [
        "end all runs", "save runs of ada", "save ada", "save runs of bob", "save bob",
        "remove containers", "remove runs",
    ]  # fmt: skip
    with zipfile.ZipFile(tmp_path / "w.zip") as archive:
        # First the runs: a student's own files cannot take their names.
        names = [name for name in archive.namelist() if name.startswith("ada/")]
    assert names == ["ada/queue/r/run.json", "ada/mine.txt"]


@pytest.mark.parametrize("step", ["save runs of ada", "save ada"])
def test_no_run_is_removed_if_the_work_cannot_be_collected(
    step: str, queue: World, tmp_path: Path
) -> None:
    folder = boot(queue)
    queue.fails = step
    with pytest.raises(LabError, match="no space"):
        down(folder, tmp_path / "w.zip", queue.lines.append)
    with pytest.raises(LabError, match="no space"):
        reset(folder, "ada", queue.lines.append)
    assert not any(line.startswith("remove runs") for line in queue.log)


def test_a_queue_that_does_not_answer_leaves_the_seat_as_it_is(queue: World) -> None:
    folder = boot(queue)
    queue.log.clear()
    queue.fails = "end runs of ada"
    with pytest.raises(LabError, match="no space"):
        reset(folder, "ada", queue.lines.append)
    assert queue.log == ["end runs of ada"]


# ---- reset


def test_reset_empties_a_seat_and_keeps_a_copy(world: World) -> None:
    folder = boot(world)
    world.log.clear()
    world.lines.clear()
    reset(folder, "bob", world.lines.append)
    assert world.log[:6] == [
        "stop bob", "users", "remove containers", "save bob", "remove volume", "create volume",
    ]  # fmt: skip
    assert world.log[6:8] == ["check_seat_gpus", "start bob"]
    assert world.lines[-2:] == [
        "bob: ready (1 of 1)",
        "bob: reset; `lab class down` collects the copy of its work",
    ]
    (copy,) = folder.copies.iterdir()
    assert re.fullmatch(r"bob-\d{8}-\d{6}\.zip", copy.name)
    with zipfile.ZipFile(copy) as archive:
        assert archive.namelist() == [f"{copy.stem}/mine.txt"]
    assert folder.is_up


def test_a_seat_gets_no_gpu_that_a_process_uses(world: World) -> None:
    folder = boot(world)
    world.fails = "check_seat_gpus"
    world.log.clear()
    with pytest.raises(LabError, match="no space"):
        reset(folder, "bob", world.lines.append)
    assert "remove volume" in world.log
    assert "start bob" not in world.log


def test_the_work_stays_if_there_is_no_copy(world: World) -> None:
    folder = boot(world)
    world.fails = "save bob"
    with pytest.raises(LabError, match="no space"):
        reset(folder, "bob", world.lines.append)
    assert "remove volume" not in world.log
    assert list(folder.copies.iterdir()) == []


def test_a_seat_that_could_not_start_can_be_reset(world: World) -> None:
    folder = boot(world)
    world.containers = [SimpleNamespace(status="created")]
    reset(folder, "bob", world.lines.append)
    assert world.lines[-1].startswith("bob: reset")


def test_a_seat_that_does_not_stop(world: World) -> None:
    folder = boot(world)
    world.containers = [SimpleNamespace(status="running")]
    with pytest.raises(LabError) as caught:
        reset(folder, "bob", world.lines.append)
    assert str(caught.value) == "bob has not stopped after 180 s; see `docker ps`"
    assert "remove volume" not in world.log


def test_a_seat_that_jupyterhub_still_stops_is_not_started(world: World) -> None:
    folder = boot(world)
    world.stop = lambda seat: world.do(f"stop {seat}")  # type: ignore[method-assign]
    with pytest.raises(LabError, match="bob has not stopped after 180 s"):
        reset(folder, "bob", world.lines.append)
    assert "save bob" not in world.log


def test_a_seat_of_another_class(world: World) -> None:
    folder = boot(world)
    with pytest.raises(InputError, match="no seat 'eve' in the class 'w'"):
        reset(folder, "eve", world.lines.append)
    assert "stop eve" not in world.log


# ---- A signal, in a process of its own

SIGNALLED = """
import sys, time
from types import SimpleNamespace
from lab.classroom import containers, environment
from lab.classroom.environment import up
from tests.support.classes import a_plan, stored

def nothing(*_): pass
for name in ('create_networks', 'create_volumes', 'start_proxy'):
    setattr(containers, name, nothing)
containers.Engine = lambda: None
containers.contents = lambda *_: {}
containers.remove_containers = lambda *_: print('containers', flush=True)
containers.remove_all = lambda *_: print('all', flush=True)
real = environment.subprocess.Popen
def popen(command, **options):
    process = real([sys.executable, '-c', 'import time; time.sleep(600)'], **options)
    print(process.pid, flush=True)
    sys.stdin.readline()  # until the signal was sent
    return process
environment.subprocess.Popen = popen
environment.hub_api = lambda folder: SimpleNamespace(answers=lambda: False)
environment._STOP_S = 600  # JupyterHub must receive SIGTERM
up(stored(a_plan(('ada',), 1)), print)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_the_boot_removes_everything(
    number: signal.Signals, tmp_path: Path
) -> None:
    root = Path(__file__).parents[2]
    variables = {
        "PYTHONPATH": str(root),
        "LAB_STATE": str(tmp_path / "state"),
        gpu_record.VARIABLE: str(tmp_path / "gpus"),
    }
    child = subprocess.Popen(
        [sys.executable, "-c", SIGNALLED],
        cwd=root,
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    hub = ProcessHandle.of(int(child.stdout.readline()))
    child.send_signal(number)
    out, err = child.communicate("\n", timeout=60)
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert out.split() == ["containers", "all"]
    assert not hub.alive()
    assert list((tmp_path / "state" / "classes").iterdir()) == []
    assert list((tmp_path / "gpus").glob("*.json")) == []


# ---- The process of JupyterHub


def test_jupyterhub_outlives_the_command_and_finds_its_class(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[list[str], dict[str, Any]]] = []

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        given.append((command, options))
        return world.start_hub()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_STATE", "state")  # relative to the user's directory
    use_popen(monkeypatch, start)
    folder = boot(world)
    ((command, options),) = given
    assert command[:4] == [sys.executable, "-m", "jupyterhub", "--config"]
    assert Path(command[4]).name == "hub_config.py"
    assert options["start_new_session"]
    assert options["cwd"] == folder.path
    assert options["env"]["LAB_CLASS"] == "w"
    assert options["env"]["LAB_STATE"] == str(tmp_path / "state")


def test_a_jupyterhub_that_cannot_be_recorded_is_killed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: ClassDir, hub: ProcessHandle) -> None:
        raise OSError(28, "No space left", "/x")

    monkeypatch.setattr(ClassDir, "write_hub", refuse)
    with pytest.raises(OSError, match="No space"):
        boot(world)
    nothing_is_left(world)


def test_a_damaged_class_stays_until_the_user_removes_it(world: World, tmp_path: Path) -> None:
    folder = created(replace(PLAN))
    (folder.path / "class.json").write_text("{")
    for action in (
        lambda: up(stored(PLAN), world.lines.append),
        lambda: down(folder, tmp_path / "w.zip", world.lines.append),
        lambda: reset(folder, "ada", world.lines.append),
    ):
        with pytest.raises(LabError, match="cannot be read"):
            action()
    assert folder.path.exists()
    assert not (tmp_path / "w.zip").exists()
