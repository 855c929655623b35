"""The record of the environments that hold GPUs of this host."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from lab.backends import gpu_record, state
from lab.backends.compose import client as engines
from lab.backends.gpu_record import Holder, hold_gpus, holder_of, release
from lab.backends.process import ProcessHandle
from lab.backends.selection import KINDS, backends
from lab.backends.state import Busy
from lab.errors import LabError
from lab.gpu import Gpu, Inventory
from lab.placement.plan import Plan, PlannedNode, PlannedTask
from tests.agents import ROOT
from tests.conditions import lacking

GPU, OTHER = "GPU-00000000-1111-2222-3333-444444444444", "GPU-00000001-1111-2222-3333-444444444444"


@pytest.fixture(autouse=True)
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "gpus"
    monkeypatch.setenv(gpu_record.VARIABLE, str(path))
    return path


def holder(name: str, *gpus: str, backend: str = "local", where: str = "/state") -> Holder:
    task = PlannedTask("worker", 0, "tf1", 2222, gpus or (GPU,))
    plan = Plan(name, "uuid", "0" * 64, (PlannedNode("tf1"),), (task,))
    return holder_of(plan, backend=backend, where=where, folder=Path("/p"))


def take(one: Holder, *, share: bool = False) -> list[str]:
    """Hold the GPUs for a moment; return the notices."""
    notices: list[str] = []
    with hold_gpus(one, share=share, notify=notices.append):
        return notices


def dead() -> ProcessHandle:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = ProcessHandle.of(child.pid)
    child.communicate(b"\n")
    return found


def names(record: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in record.iterdir())


def test_a_gpu_held_by_another_environment_is_refused(record: Path) -> None:
    take(holder("anna", GPU, OTHER))
    take(holder("else", "GPU-elsewhere"))
    with pytest.raises(LabError) as caught:
        take(holder("ben", OTHER))
    assert re.fullmatch(
        rf"GPU {OTHER} is held by environment 'anna' \(local\) of \S+ since \d{{4}}-\d\d-\d\d"
        r" \d\d:\d\d; wait for `lab down anna`, name other GPUs in the config"
        r" \(`gpus: \[4, 5\]`\), or add --share",
        str(caught.value),
    )
    assert caught.value.exit_code == 1
    assert names(record) == ["anna", "else"]
    release("local", "anna", "/state")
    take(holder("ben", OTHER))
    assert names(record) == ["ben", "else"]


def test_a_shared_gpu_is_held_by_both() -> None:
    take(holder("anna"))
    take(holder("ben"), share=True)
    release("local", "anna", "/state")
    with pytest.raises(LabError, match="'ben'"):
        take(holder("carl"))


def test_an_environment_is_no_conflict_with_itself(record: Path) -> None:
    take(holder("anna"))
    take(holder("anna", GPU, OTHER))
    take(holder("anna", OTHER))
    assert json.loads(next(record.iterdir()).read_text())["gpus"] == [OTHER]
    # One of the same name elsewhere is another one.
    with pytest.raises(LabError, match="'anna'"):
        take(holder("anna", OTHER, where="/other"))


def test_a_boot_that_fails_leaves_the_record_as_it_was(record: Path) -> None:
    def fail(one: Holder) -> None:
        with (
            pytest.raises(LabError, match="no boot"),
            hold_gpus(one, share=False, notify=print),
        ):
            raise LabError("no boot")

    fail(holder("anna"))
    assert names(record) == []
    take(holder("anna"))
    fail(holder("anna", OTHER))
    assert json.loads(next(record.iterdir()).read_text())["gpus"] == [GPU]


def test_without_gpus_nothing_is_touched(record: Path) -> None:
    take(replace(holder("anna"), gpus=()))
    release("local", "anna", "/state")
    assert not record.exists()


def test_an_ended_environment_is_ignored(record: Path) -> None:
    take(replace(holder("anna"), process=dead()))
    take(holder("ben"))
    assert names(record) == ["ben"]


def test_an_entry_of_an_earlier_boot_is_ignored(record: Path) -> None:
    mine = ProcessHandle.of(os.getpid())
    for backend in KINDS:
        take(replace(holder("anna", backend=backend), process=replace(mine, boot="earlier")))
        take(holder("ben"))
        assert names(record) == ["ben"]
        release("local", "ben", "/state")


def test_every_backend_is_named() -> None:
    assert {each.name for each in backends()} == set(KINDS)


def test_a_backend_needs_no_more_than_its_name_to_hold_gpus(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "other", "machines")
    take(holder("anna", backend="other"))
    with pytest.raises(LabError, match=r"is held by environment 'anna' \(other\)"):
        take(holder("ben"))
    assert len(names(record)) == 1


def test_another_process_takes_over(record: Path) -> None:
    with hold_gpus(replace(holder("anna"), process=dead()), share=False, notify=print) as hold:
        hold(ProcessHandle.of(os.getpid()))
    with pytest.raises(LabError, match="'anna'"):
        take(holder("ben"))


def test_the_process_of_another_user_may_be_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    take(replace(holder("anna"), process=dead()))

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    with pytest.raises(LabError, match="'anna'"):
        take(holder("ben"))


def test_one_command_at_a_time_has_the_record(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(holder("anna"))
    monkeypatch.setattr(state, "BUSY_S", 0.0)
    descriptor = os.open(record, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(Busy, match="another command reads or writes the GPU record; try again"):
        take(holder("ben", OTHER))
    os.close(descriptor)
    take(holder("ben", OTHER))


class FakeEngine:
    """An engine with one container of one project."""

    status = "running"

    def id(self) -> str:
        return "engine-1"

    def containers(self, label: str) -> list[Any]:
        return [type("Container", (), {"status": self.status})] if label.endswith("=anna") else []


def test_containers_hold_gpus_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "Engine", FakeEngine)
    of_containers = holder("anna", backend="compose", where="engine-1")
    take(replace(of_containers, process=dead()))
    with pytest.raises(LabError, match=r"'anna' \(compose\) of \S+ since [^;]*; wait for"):
        take(holder("ben"))
    monkeypatch.setattr(FakeEngine, "status", "exited")
    take(holder("ben"))


def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoEngine(FakeEngine):
        def id(self) -> str:
            raise LabError("no engine")

    monkeypatch.setattr(engines, "Engine", NoEngine)


def another_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "id", lambda _self: "engine-2")
    monkeypatch.setattr(engines, "Engine", FakeEngine)


@pytest.mark.parametrize("cause", [no_engine, another_engine])
def test_unknown_state_counts_as_up(
    record: Path, monkeypatch: pytest.MonkeyPatch, cause: Callable[[pytest.MonkeyPatch], None]
) -> None:
    cause(monkeypatch)
    take(replace(holder("anna", backend="compose", where="engine-1"), process=dead()))
    message = (
        rf"cannot check .* still up; .* if it no longer exists, remove {record}/anna\.\w+\.json"
    )
    with pytest.raises(LabError, match=message):
        take(holder("ben"))
    take(holder("ben"), share=True)


def test_the_newest_entry_of_an_environment_counts(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two users of one engine can boot the same environment, one after the other."""
    monkeypatch.setattr(engines, "Engine", FakeEngine)
    old = holder("anna", GPU, backend="compose", where="engine-1")
    take(old)
    found: dict[str, int] = {}
    monkeypatch.setattr(gpu_record, "_read", lambda path: read(path, found))

    def read(path: Path, uids: dict[str, int]) -> gpu_record._Entry:
        one = old if path.name == old.file_name(os.getuid()) else newer
        return gpu_record._Entry(path, uids.get(path.name, 0), one)

    newer = replace(old, gpus=(OTHER,), since_unix=old.since_unix + 1)
    (record / newer.file_name(12345)).write_text("{}")
    take(holder("ben", GPU))
    with pytest.raises(LabError, match="'anna'"):
        take(holder("carl", OTHER))


def test_indices_are_uuids_where_a_driver_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Inventory("uuid", (Gpu(0, GPU), Gpu(1, OTHER)), 2, None)
    monkeypatch.setattr(gpu_record, "read_host", lambda: host)
    task = PlannedTask("worker", 0, "tf1", 2222, ("1", "7"))
    plan = Plan("anna", "index", "0" * 64, (PlannedNode("tf1"),), (task,))
    one = holder_of(plan, backend="local", where="/s", folder=Path("/p"))
    assert one.gpus == (OTHER, "7")


# ---- Files of other users


def text_of(one: Holder, **changes: object) -> str:
    fields = {name: getattr(one, name) for name in one.__slots__}
    mine = one.process
    fields["process"] = {"pid": mine.pid, "started": mine.started, "boot": mine.boot}
    return json.dumps({**fields, **changes})


ANNA = holder("anna")
NAME = ANNA.file_name(os.getuid())


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (NAME, "", "Input data was truncated"),
        (NAME, "[" * 20_000, ""),
        (NAME, '{"x": ' * 9_000, ""),
        (NAME, "{}", "missing required field"),
        (NAME, "x" * 70_000, "more than 65,536 bytes"),
        (NAME, text_of(ANNA, gpus=[1]), r"Expected `str`, got `int` - at `\$.gpus"),
        (NAME, text_of(ANNA, since_unix=1e300), "its time is out of range"),
        (
            NAME,
            text_of(ANNA, process={"pid": -1, "started": "", "boot": ""}),
            "its process id is out of range",
        ),
        ("other.json", text_of(ANNA), "its file name does not match"),
        (ANNA.file_name(os.getuid() + 1), text_of(ANNA), "its file name does not match"),
    ],
)
def test_a_file_that_is_no_entry_is_named_and_ignored(
    record: Path, name: str, text: str, why: str
) -> None:
    take(holder("ben", OTHER))
    (record / name).write_text(text)
    (notice,) = take(holder("carl"))
    start = f"warning: ignored 1 file in the GPU record {record} that `lab` did not write: {name}: "
    assert notice.startswith(start)
    assert re.search(why, notice.removeprefix(start))
    with pytest.raises(LabError, match="'ben'"):
        take(holder("dora", OTHER))
    release("local", "carl", "/state")
    assert (record / name).exists()


def test_a_link_a_pipe_and_a_directory_are_no_entries(record: Path, tmp_path: Path) -> None:
    take(holder("ben", OTHER))
    precious = tmp_path / "precious"
    precious.write_text("mine")
    path = record / NAME
    for make in (lambda: path.symlink_to(precious), lambda: os.mkfifo(path), path.mkdir):
        make()
        assert len(take(holder("carl"))) == 1
        release("local", "carl", "/state")
        path.rmdir() if path.is_dir() else path.unlink()
    # Its own entry is replaced, and never written through.
    path.symlink_to(precious)
    take(ANNA, share=True)
    assert not path.is_symlink()
    assert precious.read_text() == "mine"


def test_one_notice_names_all_ignored_files(record: Path) -> None:
    take(holder("ben", OTHER))
    for number in range(3):
        (record / f"{number}\x1b.json").write_text("{}")
    (notice,) = take(ANNA)
    assert notice.startswith(f"warning: ignored 3 files in the GPU record {record} that ")
    assert "0\\x1b.json: " in notice


@pytest.mark.parametrize("error", [PermissionError(13, "no"), BlockingIOError(11, "leased")])
def test_a_file_that_its_owner_hides_is_ignored(
    record: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    take(holder("ben", OTHER))
    fail_to_read(monkeypatch, error)
    (notice,) = take(ANNA)
    assert notice.endswith(".json: it is not readable")


def test_a_disk_that_fails_holds_the_gpus(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take(holder("ben", OTHER))
    fail_to_read(monkeypatch, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(LabError, match=rf"{record}/ben\.\w+\.json cannot be read: Input/output"):
        take(ANNA)
    take(ANNA, share=True)


def fail_to_read(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def fail(*_: object) -> str:
        raise error

    monkeypatch.setattr(gpu_record, "read_regular", fail)


def test_an_entry_of_a_later_lab_or_of_a_wrong_clock_counts(record: Path) -> None:
    unknown = replace(holder("anna", backend="later"), process=dead())
    take(unknown)
    with pytest.raises(LabError, match=r"'anna' \(later\) .*cannot check whether it is still up"):
        take(holder("ben"))
    release("later", "anna", "/state")
    take(replace(holder("anna", backend="later\x1b" + "x" * 9000), process=dead()))
    with pytest.raises(LabError) as caught:
        take(holder("ben"))
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    release("later\x1b" + "x" * 9000, "anna", "/state")
    take(replace(holder("anna"), since_unix=time.time() + 1e9))
    with pytest.raises(LabError, match="'anna'"):
        take(holder("ben"))


def test_every_user_can_use_the_directory_and_read_the_entries(record: Path) -> None:
    before = os.umask(0o077)
    try:
        take(ANNA)
    finally:
        os.umask(before)
    assert stat.S_IMODE(record.stat().st_mode) == 0o1777
    mode = stat.S_IMODE((record / NAME).stat().st_mode)
    assert mode & 0o777 == 0o644
    if sys.platform == "linux":
        assert mode & stat.S_ISVTX  # no clean-up of old files takes it


def test_a_directory_in_a_setgid_directory(record: Path) -> None:
    record.parent.chmod(0o2755)
    take(ANNA)
    take(ANNA)
    assert names(record) == ["anna"]


def test_a_directory_that_cannot_be_used(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    record.symlink_to(tmp_path / "elsewhere")
    fix = rf"create it with `sudo install -d -m 1777 {record}`, or set LAB_GPU_RECORD"
    with pytest.raises(LabError, match=rf"{record} cannot be used: not a directory; {fix}"):
        take(ANNA)
    assert not list((tmp_path / "elsewhere").iterdir())
    record.unlink()
    monkeypatch.setenv(gpu_record.VARIABLE, "/proc/gpus")
    with pytest.raises(LabError, match="/proc/gpus cannot be used: "):
        take(ANNA)


def test_the_mode_of_a_directory_that_lab_did_not_create_is_kept(record: Path) -> None:
    record.mkdir(0o755)
    fix = "set LAB_GPU_RECORD to a path that does not exist yet: `lab` creates the directory"
    with pytest.raises(LabError, match=f"cannot be used: its mode is 755, not 1777; {fix}"):
        take(ANNA)
    release("local", "anna", "/state")
    assert stat.S_IMODE(record.stat().st_mode) == 0o755
    assert not list(record.iterdir())
    record.chmod(0o1777)  # as root does for all users
    take(ANNA)
    assert names(record) == ["anna"]


def test_a_file_of_another_user_in_its_place(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:  # as a sticky directory does
        raise PermissionError

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(LabError, match=r"\.json belongs to another user; remove it with `sudo rm"):
        take(ANNA)
    assert names(record) == []


CHILD = """\
import os, sys
from pathlib import Path
import msgspec
from lab.backends.gpu_record import hold_gpus, holder_of
from lab.errors import LabError
from lab.placement.plan import Plan, PlannedNode, PlannedTask
task = PlannedTask("worker", 0, "tf1", 2222, ("GPU-x",))
plan = Plan(sys.argv[1], "uuid", "0" * 64, (PlannedNode("tf1"),), (task,))
holder = holder_of(plan, backend="local", where="/s", folder=Path("/p"))
if len(sys.argv) > 2:  # only now: another user may not read this Python
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
print("ready", flush=True)
input()
try:
    with hold_gpus(holder, share=False, notify=print):
        pass
    print("holds", flush=True)
except LabError as error:
    print(error, flush=True)
input()
"""


def child(name: str, *more: str) -> subprocess.Popen[str]:
    found = subprocess.Popen(
        [sys.executable, "-c", CHILD, name, *more],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert found.stdout is not None
    assert found.stdout.readline() == "ready\n"
    return found


def go(*processes: subprocess.Popen[str]) -> list[str]:
    """All of them try at once; return the output of each."""
    for each in processes:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    return [each.stdout.readline() for each in processes if each.stdout is not None]


def end(*processes: subprocess.Popen[str]) -> None:
    for each in processes:
        each.communicate("\n", timeout=60)


def test_of_many_at_once_one_gets_the_gpu() -> None:
    processes = [child(f"user-{number}") for number in range(6)]
    output = go(*processes)
    end(*processes)
    assert sorted(line == "holds\n" for line in output) == [False] * 5 + [True]
    winner = output.index("holds\n")
    held_by = f"GPU GPU-x is held by environment 'user-{winner}' (local)"
    assert sum(line.startswith(held_by) for line in output) == 5


@pytest.fixture
def open_to_all(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        monkeypatch.setenv(gpu_record.VARIABLE, f"{folder}/gpus")
        yield


@pytest.mark.usefixtures("open_to_all")
def test_users_see_each_others_environments() -> None:
    if os.getuid() != 0:
        lacking("only root can be two users")
    first, second = child("anna", "12345"), child("ben", "12346")
    assert go(first) == ["holds\n"]
    (line,) = go(second)
    assert line.startswith("GPU GPU-x is held by environment 'anna' (local) of user 12345 since ")
    end(first, second)
    # It has ended: another user may take them, though its file remains in the sticky directory.
    third = child("carl", "12346")
    assert go(third) == ["holds\n"]
    end(third)
