"""Boot, reset and removal of a class, with seats that only record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from lab.backends import gpu_record
from lab.backends.gpu_record import Holder, hold_gpus
from lab.backends.names import CLASS
from lab.backends.state import Busy, locked, state_directory
from lab.base.errors import InputError, LabError
from lab.base.variables import LAB_GPU_RECORD
from lab.teach.classroom import hub_api, up_down
from lab.teach.classroom.class_dir import ClassDir
from lab.teach.classroom.queue.host import ledger_file
from lab.teach.classroom.up_down import down, reset, up
from tests.golden.boxes import uuid_of
from tests.support.agents import processes_with, wait_for
from tests.support.classes import a_plan, stored

PLAN = a_plan(("ada", "bob"), 1, cpu_runs=1)
FOLDER = ClassDir("w")
HUB = "import time; from pathlib import Path; Path('ready').touch(); time.sleep(600)\n"
NO_SPACE = LabError("no space")
ERRORS = [NO_SPACE, OSError(28, "No space left", "/x"), KeyboardInterrupt()]


@dataclass
class Seats:
    """The containers of the seats, JupyterHub and the queue, which only record their calls.

    Attributes:
        fails: The calls that fail.
        program: JupyterHub. Only its process is real.
        server: What JupyterHub reports about the server of each of the seats in `started`.
    """

    log: list[str] = field(default_factory=list)
    fails: Sequence[str] = ()
    error: BaseException = NO_SPACE
    program: str = HUB
    server: dict[str, object] = field(default_factory=lambda: {"ready": True})
    started: list[str] = field(default_factory=list)
    has_files: bool = True

    def do(self, *words: str) -> None:
        self.log.append(" ".join(filter(None, words)))
        if self.log[-1] in self.fails:
            raise self.error

    def __getattr__(self, name: str) -> Any:
        def record(*given: object) -> None:
            words = [[each] if isinstance(each, str) else each for each in given]
            self.do(name, *chain(*(each for each in words if isinstance(each, list))))

        return record

    def start_proxy(self) -> None:
        # A module in its current directory replaces the real one.
        ledger_file(FOLDER).parent.mkdir(exist_ok=True)
        (FOLDER.path / "jupyterhub.py").write_text(self.program)
        self.do("start_proxy")

    def answers(self) -> bool:
        wait_for((FOLDER.path / "ready").exists, "JupyterHub does not start")
        return True

    def servers(self) -> dict[str, Any]:
        return dict.fromkeys(self.started, self.server)

    def start(self, seat: str) -> None:
        self.do("start", seat)
        self.started.append(seat)

    def stop(self, seat: str = "") -> None:
        self.do("stop", seat)
        self.started = [each for each in self.started if seat and each != seat]

    def is_stopped(self, seat: str) -> bool:
        return seat not in self.started

    def proxy_runs(self) -> bool:
        return True

    def save(self, seat: str, archive: zipfile.ZipFile, folder: str) -> None:
        self.do("save", seat)
        archive.writestr(f"{folder}/mine.txt", b"mine")

    def replace_storage(self, seat: str) -> None:
        self.has_files = False
        self.do("replace_storage", seat)
        self.has_files = True

    def has_storage(self, _: str) -> bool:
        return self.has_files


@pytest.fixture
def seats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seats]:
    """The seats of a class `w`. For the tested module, each look at the clock takes a second."""
    found, seconds = Seats(), count()
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv(LAB_GPU_RECORD, str(tmp_path / "gpus"))
    clock = {"time": time.time, "monotonic": lambda: next(seconds)}
    for module in (up_down, hub_api):
        fast = SimpleNamespace(**clock, sleep=lambda _: time.sleep(0.001))
        monkeypatch.setattr(module, "time", fast)
    monkeypatch.setattr(up_down, "Containers", lambda _: found)
    monkeypatch.setattr(up_down, "hub_api", lambda *_: found)
    monkeypatch.setattr(up_down, "programs_left", lambda _: found.do("check GPUs") or "")
    for name in ("end_environments", "remove_environments"):
        monkeypatch.setattr(up_down, name, getattr(found, name))
    yield found
    for hub in hubs():
        os.kill(hub, signal.SIGKILL)


def hubs() -> list[int]:
    return processes_with(f"LAB_STATE={state_directory()}\0")


def boot(seats: Seats) -> None:
    seats.log.clear()
    up(stored(PLAN))


def kill_hub() -> None:
    hub = FOLDER.hub()
    hub.signal(signal.SIGKILL)
    # The kernel empties its command line before it releases the lock on the GPUs.
    wait_for(lambda: not hub.alive(), "JupyterHub does not end")


def record() -> dict[str, dict[str, Any]]:
    found = map(json.loads, (path.read_text() for path in gpu_record.directory().glob("*.json")))
    return {each["project"]: each for each in found}


def take(name: str, *gpus: str) -> Any:
    return hold_gpus(Holder(name, "local", "/p", gpus), share=False)


def watched(seats: Seats, look: Callable[[], bool]) -> list[tuple[str, bool]]:
    """Each step from now on, with what a look at this moment shows."""
    steps, do = list[tuple[str, bool]](), seats.do

    def looking(*words: str) -> None:
        steps.append((" ".join(filter(None, words)), look()))
        do(*words)

    seats.do = looking
    return steps


def assert_nothing_is_left(seats: Seats) -> None:
    assert "remove" in seats.log
    assert not FOLDER.path.exists()
    assert "w" not in record()
    wait_for(lambda: not hubs(), "JupyterHub is left")


def test_jupyterhub_outlives_the_command_with_variables_of_its_own(
    seats: Seats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_STATE", "state")  # relative to the user's directory
    boot(seats)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    assert FOLDER.is_up
    (pid,) = hubs()
    assert (os.getsid(pid), psutil.Process(pid).cwd()) == (pid, str(FOLDER.path))


def test_the_gpus_are_held_while_jupyterhub_runs(seats: Seats) -> None:
    with take("mnist", uuid_of(0)), pytest.raises(LabError, match="wait for `lab down mnist`"):
        boot(seats)
    assert set(record()) == {"mnist"}
    gpu_record.release("local", "mnist", "/p")
    boot(seats)
    entry = record()["w"]
    assert (entry["backend"], entry["gpus"]) == (CLASS, [uuid_of(0), uuid_of(1)])
    with (
        pytest.raises(LabError, match=r"is held by environment 'w' .*wait for `lab class down`"),
        take("mnist", uuid_of(1)),
    ):
        pass
    kill_hub()
    with take("mnist", uuid_of(1)):
        pass


@pytest.mark.parametrize(
    ("step", "error"),
    [
        *((f"create_{what}", NO_SPACE) for what in ("networks", "storage")),
        *((f"{what}_proxy", NO_SPACE) for what in ("start", "wait_for")),
        *(("start bob", error) for error in ERRORS),
    ],
)
def test_a_boot_that_fails_leaves_nothing(step: str, error: BaseException, seats: Seats) -> None:
    seats.fails, seats.error = [step], error
    with pytest.raises(type(error)) as caught:
        boot(seats)
    assert caught.value is error
    assert_nothing_is_left(seats)
    seats.fails = ()
    boot(seats)  # it can be booted afterwards
    assert FOLDER.is_up


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_jupyterhub_starts_removes_everything(
    number: signal.Signals, seats: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess.Popen

    def popen(*given: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*given, **options)
        wait_for((FOLDER.path / "ready").exists, "JupyterHub does not start")
        signal.raise_signal(number)
        return process

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        boot(seats)
    assert_nothing_is_left(seats)


def test_parts_that_cannot_be_removed_can_be_removed_later(
    seats: Seats, tmp_path: Path, notices: list[str]
) -> None:
    seats.fails = ["start bob", "remove"]
    with pytest.raises(LabError, match="no space"):
        up(stored(PLAN))
    assert notices[-1] == "remove them with `lab class down`"
    seats.fails = ()
    down(FOLDER, tmp_path / "w.zip")
    assert_nothing_is_left(seats)


SLEEPS = "import time; time.sleep(600)"
ENDS = r"print('starting\n[E] port\x1b[2J in use', flush=True); raise SystemExit(3)"
FAILED = "[E 2026 x] no such \x1bGPU\nTraceback"


@pytest.mark.parametrize(
    ("program", "server", "hub_log", "message"),
    [
        (ENDS, {}, "", r"JupyterHub ended \(exit code 3\): starting / \[E\] port\\x1b\[2J in use"),
        (SLEEPS, {}, "", "JupyterHub is not ready after 60 s: "),
        (HUB, {"pending": "spawn"}, "", "ada is not ready after 180 s"),
        (HUB, {}, "[I 2026 x] fine", "ada does not start: JupyterHub logged no error"),
        (HUB, {}, FAILED, r"ada does not start: no such \\x1bGPU"),
    ],
)
def test_what_does_not_start_is_named(
    program: str, server: dict[str, object], hub_log: str, message: str, seats: Seats
) -> None:
    def answers() -> bool:
        wait_for(lambda: program != ENDS or not FOLDER.is_up, "JupyterHub does not end")
        return program == HUB and FOLDER.log.write_text(hub_log) >= 0

    seats.program, seats.server, seats.answers = program, server, answers
    with pytest.raises(LabError, match=message):
        boot(seats)
    assert_nothing_is_left(seats)


def test_many_seats_start_a_few_at_a_time(seats: Seats) -> None:
    counts, servers = [0], seats.servers
    seats.servers = lambda: counts.append(len(seats.started)) or servers()
    up(stored(a_plan(30)))
    assert max(after - before for before, after in pairwise(counts)) == 4
    assert len(seats.started) == 30


@pytest.mark.parametrize("step", ["stop", "start_proxy", "start bob"])
def test_a_class_goes_on_where_it_ended_also_after_a_failure(
    step: str, seats: Seats, notices: list[str]
) -> None:
    boot(seats)
    kill_hub()
    before, tokens = record(), FOLDER.tokens()
    FOLDER.resetting("bob").touch()  # a reset was killed
    seats.fails = [step]
    with pytest.raises(LabError, match="no space"):
        boot(seats)
    assert "remove" not in seats.log
    assert not FOLDER.is_up  # no JupyterHub without the record of its GPUs
    assert record() == before
    seats.fails = ()
    seats.log.clear()
    notices.clear()
    up(stored(a_plan(("cy",))))  # another plan: its own one holds
    assert seats.log[:3] == ["stop", "create_storage", "start_proxy"]
    assert not FOLDER.resetting("bob").exists()
    assert (notices[0], notices[-1]) == (
        "class w: continuing where it stopped",
        "bob: ready (2 of 2)",
    )
    assert (FOLDER.tokens(), FOLDER.stored()) == (tokens, stored(PLAN))
    with pytest.raises(LabError, match="held by environment 'w'"), take("mnist", uuid_of(1)):
        pass


def test_a_class_goes_on_without_a_seat_that_does_not_start(
    seats: Seats, notices: list[str]
) -> None:
    boot(seats)
    kill_hub()
    servers, broken = seats.servers, {"ada"}
    seats.servers = lambda: {name: each for name, each in servers().items() if name not in broken}
    boot(seats)
    assert FOLDER.is_up
    assert "bob: ready (1 of 2)" in notices
    assert notices[-1] == (
        "ada does not start: JupyterHub logged no error; the class continues without it"
    )
    kill_hub()
    broken.add("bob")
    with pytest.raises(LabError, match="ada does not start"):
        boot(seats)


def test_a_proxy_that_has_ended_is_started_alone(seats: Seats, notices: list[str]) -> None:
    boot(seats)
    before, hub = record(), hubs()
    seats.proxy_runs = lambda: False
    boot(seats)
    # No seat is stopped.
    assert seats.log == ["start_proxy", "wait_for_proxy", "restore_routes"]
    assert notices[-1] == "class w: starting its proxy, which had stopped"
    seats.fails = ["start_proxy"]
    with pytest.raises(LabError, match="no space"):
        boot(seats)
    assert (record(), hubs()) == (before, hub)
    assert FOLDER.is_up


def test_what_no_action_changes(seats: Seats, tmp_path: Path) -> None:
    def refused(error: type[LabError], what: str, *actions: Callable[[], None]) -> None:
        for action in actions:
            with pytest.raises(error, match=what):
                action()

    again, *others = (
        lambda: up(stored(PLAN)),
        lambda: down(FOLDER, tmp_path / "w.zip"),
        lambda: reset(FOLDER, "ada"),
    )
    refused(InputError, "no class 'w' is up; start it with `lab class up`", *others)
    boot(seats)
    with locked(FOLDER.lock, "x"):
        refused(Busy, "another command is using the class 'w'", again, *others)
    refused(InputError, "the class 'w' is already up", again)
    refused(InputError, "no seat 'eve' in the class 'w'", lambda: reset(FOLDER, "eve"))
    assert seats.log[-1] == "start bob"
    assert not (tmp_path / "w.zip").exists()


def test_down_collects_what_no_program_changes_any_more(
    seats: Seats, tmp_path: Path, notices: list[str]
) -> None:
    boot(seats)
    FOLDER.copies.mkdir()
    (FOLDER.copies / "ada-20261201-090000.zip").write_bytes(b"earlier")
    steps = watched(seats, lambda: FOLDER.is_up)
    down(FOLDER, tmp_path / "w.zip")
    assert notices[-1] == f"class w: removed; the work of its seats is in {tmp_path}/w.zip"
    with zipfile.ZipFile(tmp_path / "w.zip") as archive:
        assert archive.namelist() == [
            "resets/ada-20261201-090000.zip", "ada/mine.txt", "bob/mine.txt", "gradebook.csv",
        ]  # fmt: skip
        assert archive.read("gradebook.csv").startswith(b"seat,lesson,stage,passed,when,")
    stops = ["stop", "remove_environments ada bob"]
    saves = ["save ada", "save bob"]
    after = [(each, False) for each in (*stops, *saves, "remove", "check GPUs")]
    assert steps == [("end_environments ada bob", True), *after], "JupyterHub would start seats"
    assert_nothing_is_left(seats)
    assert [path.name for path in (tmp_path / "state").rglob("*")] == ["classes"]


def test_what_does_not_end_by_itself(seats: Seats, tmp_path: Path, notices: list[str]) -> None:
    seats.program = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {HUB}"
    boot(seats)
    # The queue refuses, and a process still uses a GPU.
    seats.fails = ["end_environments ada bob", "check GPUs"]
    with pytest.raises(LabError, match="no space"):
        down(FOLDER, tmp_path / "w.zip")
    assert "warning: no space" in notices
    assert "remove_environments ada bob" in seats.log
    assert zipfile.is_zipfile(tmp_path / "w.zip")
    assert (tmp_path / "w.zip").stat().st_mode & 0o777 == 0o600
    assert_nothing_is_left(seats)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("step", ["stop", "save bob"])
def test_nothing_is_removed_if_the_work_cannot_be_collected(
    step: str, error: BaseException, seats: Seats, tmp_path: Path, notices: list[str]
) -> None:
    boot(seats)
    with pytest.raises(FileNotFoundError):
        down(FOLDER, tmp_path / "no" / "w.zip")
    (tmp_path / "w.zip").write_bytes(b"precious")
    with pytest.raises(InputError, match=r"w\.zip exists already; choose another file"):
        down(FOLDER, tmp_path / "w.zip")
    assert (tmp_path / "w.zip").read_bytes() == b"precious"
    assert FOLDER.is_up
    (tmp_path / "w.zip").unlink()
    seats.fails, seats.error = [step], error
    with pytest.raises(type(error)):
        down(FOLDER, tmp_path / "w.zip")
    assert not (tmp_path / "w.zip").exists()
    assert "remove" not in seats.log
    assert notices[-1] == (
        "class w: its seats are stopped, but nothing was removed; continue with `lab class up`, "
        "or try `lab class down` again"
    )
    seats.fails = ()
    boot(seats)
    assert FOLDER.is_up


def test_jupyterhub_starts_no_seat_whose_storage_is_replaced(seats: Seats) -> None:
    boot(seats)
    steps = watched(seats, lambda: FOLDER.resetting("bob").exists())
    reset(FOLDER, "bob")
    assert dict(steps) == {
        "end_environments bob": False,  # it may refuse
        **dict.fromkeys(("stop bob", "remove_environments bob", "save bob"), True),
        **{"replace_storage bob": True, "check GPUs": True, "start bob": False},
    }


@pytest.mark.parametrize(
    ("step", "stays", "says"),
    [
        ("end_environments bob", "as it is", ""),
        ("remove_environments bob", "on", "bob: not reset; it starts again with its own files"),
        ("save bob", "on", "bob: not reset; it starts again with its own files"),
        ("replace_storage bob", "off", "is kept; run `lab class reset bob` again"),
        ("check GPUs", "off", ""),
    ],
)
@pytest.mark.parametrize("error", ERRORS)
def test_a_seat_that_is_not_reset_has_its_own_files_or_stays_stopped(
    step: str, stays: str, says: str, error: BaseException, seats: Seats, notices: list[str]
) -> None:
    boot(seats)
    seats.log.clear()
    seats.fails, seats.error = [step], error
    with pytest.raises(type(error)):
        reset(FOLDER, "bob")
    assert seats.log[-1] == ("start bob" if stays == "on" else step)
    assert FOLDER.resetting("bob").exists() is (stays == "off")
    assert says in notices[-1]
    copies = list(FOLDER.copies.glob("*"))
    assert len(copies) == (stays == "off")
    if "storage" in step:
        seats.fails = ()
        reset(FOLDER, "bob")
        assert seats.log[-1] == "start bob"
        assert not FOLDER.resetting("bob").exists()
        assert list(FOLDER.copies.iterdir()) == copies, "there is no newer work"


@pytest.mark.parametrize("has_programs", [True, False])
def test_a_seat_that_does_not_stop_stays_as_it_is(*, has_programs: bool, seats: Seats) -> None:
    boot(seats)
    seats.stop = lambda _: seats.do("stop")  # JupyterHub knows it
    seats.is_stopped = lambda _: not has_programs
    with pytest.raises(LabError, match="bob has not stopped after 180 s; see `docker ps`"):
        reset(FOLDER, "bob")
    assert set(seats.log[-3:-1]) == {"stop"}
    assert not {"save bob", "replace_storage bob"} & set(seats.log)
