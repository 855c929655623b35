"""The record of the environments that hold GPUs of this host."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lab.backends import gpu_record
from lab.backends.compose import backend as compose
from lab.backends.gpu_record import Holder, hold_gpus, holder_of, release
from lab.backends.names import CAPABILITIES
from lab.backends.process import ProcessHandle
from lab.backends.registry import backends
from lab.errors import LabError
from lab.gpu import Gpu, Inventory
from lab.log import shown_by
from lab.placement.plan import Plan, PlannedNode, PlannedTask
from lab.variables import LAB_GPU_RECORD
from tests.support.conditions import lacking

GPU, OTHER = "GPU-00000000-1111-2222-3333-444444444444", "GPU-00000001-1111-2222-3333-444444444444"


@pytest.fixture(autouse=True)
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "gpus"
    monkeypatch.setenv(LAB_GPU_RECORD, str(path))
    return path


def planned(name: str, *gpus: str, mode: str = "uuid") -> Plan:
    task = PlannedTask("worker", 0, "tf1", 2222, gpus or (GPU,))
    return Plan(name, mode, "0" * 64, (PlannedNode("tf1"),), (task,))


def holder(name: str, *gpus: str, backend: str = "local", where: str = "/state") -> Holder:
    return holder_of(planned(name, *gpus), backend=backend, where=where, folder=Path("/p"))


def dead(one: Holder) -> Holder:
    """The same, whose process has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = replace(one, process=ProcessHandle.of(child.pid))
    child.communicate(b"\n")
    return found


def take(one: Holder, *, share: bool = False) -> list[str]:
    """Hold the GPUs for a moment; return the notices."""
    notices: list[str] = []
    with shown_by(notices.append), hold_gpus(one, share=share):
        return notices


def refused(one: Holder, match: str) -> LabError:
    with pytest.raises(LabError, match=match) as caught:
        take(one)
    return caught.value


def names(record: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in record.iterdir())


def test_a_gpu_held_by_another_environment_is_refused(record: Path) -> None:
    take(holder("anna", GPU, OTHER))
    take(holder("else", "GPU-elsewhere"))
    error = refused(holder("ben", OTHER), rf"GPU {OTHER} is held by .* 'anna' \(local\) of \S+ ")
    assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d; wait for `lab down anna`", str(error))
    assert "--share" in error.fix
    assert error.exit_code == 1
    assert names(record) == ["anna", "else"]
    take(holder("carl", OTHER), share=True)
    release("local", "anna", "/state")
    # A shared GPU is held by both.
    refused(holder("ben", OTHER), "'carl'")
    release("local", "carl", "/state")
    take(holder("ben", OTHER))
    assert names(record) == ["ben", "else"]


def test_an_environment_is_no_conflict_with_itself(record: Path) -> None:
    take(holder("anna"))
    take(holder("anna", GPU, OTHER))
    take(holder("anna", OTHER))
    assert json.loads(next(record.iterdir()).read_text())["gpus"] == [OTHER]
    # One of the same name elsewhere is another one.
    refused(holder("anna", OTHER, where="/other"), "'anna'")


def test_a_boot_that_fails_leaves_the_record_as_it_was(record: Path) -> None:
    def fail(one: Holder) -> None:
        with pytest.raises(LabError, match="no boot"), hold_gpus(one, share=False):
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


def test_entries_of_ended_environments_and_of_earlier_boots_are_ignored(record: Path) -> None:
    assert {each.name for each in backends()} == set(CAPABILITIES)
    earlier = replace(ProcessHandle.of(os.getpid()), boot="earlier")
    for one in (
        dead(holder("anna")),
        *(replace(holder("anna", backend=backend), process=earlier) for backend in CAPABILITIES),
    ):
        take(one)
        take(holder("ben"))
        assert names(record) == ["ben"]
        release("local", "ben", "/state")


def test_another_process_takes_over() -> None:
    with hold_gpus(dead(holder("anna")), share=False) as hold:
        hold(ProcessHandle.of(os.getpid()))
    refused(holder("ben"), "'anna'")


def test_the_process_of_another_user_may_be_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    take(dead(holder("anna")))

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    refused(holder("ben"), "'anna'")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The engine `engine-1`, with one container of one project."""
    found = Mock(id=Mock(return_value="engine-1"), container=Mock(status="running"))
    found.containers = lambda label: [found.container] if label.endswith("=anna") else []
    monkeypatch.setattr(compose, "Engine", lambda: found)
    return found


@pytest.mark.parametrize(
    ("name", "status", "why"),
    [
        ("engine-1", "running", r"'anna' \(compose\) of \S+ since [^;]*; wait for"),
        ("engine-1", "exited", ""),
        (
            LabError("none"),
            "exited",
            r"cannot check .* still up; .* if it no longer exists, remove \S+anna",
        ),
        ("engine-2", "exited", r"cannot check .* still up"),
    ],
)
def test_containers_hold_gpus_while_they_run_or_their_engine_is_unknown(
    engine: Mock, name: str | LabError, status: str, why: str
) -> None:
    engine.id.side_effect, engine.container.status = [name], status
    take(dead(holder("anna", backend="compose", where="engine-1")))
    if why:
        refused(holder("ben"), why)
    take(holder("ben"), share=bool(why))


@pytest.mark.usefixtures("engine")
def test_the_newest_entry_of_an_environment_counts(record: Path) -> None:
    """Two users of one engine can boot the same environment, one after the other."""
    if os.getuid() != 0:
        lacking("only root can be two users")
    old = holder("anna", GPU, backend="compose", where="engine-1")
    newer = replace(old, gpus=(OTHER,), since_unix=old.since_unix + 1)
    take(old)
    path = record / newer.file_name(12345)
    path.write_text(text_of(newer))
    os.chown(path, 12345, 12345)
    take(holder("ben", GPU))
    refused(holder("carl", OTHER), r"'anna' \(compose\) of user 12345 since ")


def test_indices_are_uuids_where_a_driver_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Inventory("uuid", (Gpu(0, GPU), Gpu(1, OTHER)), 2, None)
    monkeypatch.setattr(gpu_record, "read_host", lambda: host)
    plan = planned("anna", "1", "7", mode="index")
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
NO_PROCESS = {"pid": -1, "started": "", "boot": ""}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (NAME, "", "Input data was truncated"),
        (NAME, "[" * 20_000, ""),
        (NAME, '{"x": ' * 9_000, ""),
        (NAME, "x" * 70_000, "more than 65,536 bytes"),
        (NAME, text_of(ANNA, gpus=[1]), r"Expected `str`, got `int` - at `\$.gpus"),
        (NAME, text_of(ANNA, since_unix=1e300), "its time is out of range"),
        (NAME, text_of(ANNA, process=NO_PROCESS), "its process id is out of range"),
        ("other\x1b.json", text_of(ANNA), "its file name does not match"),
        (ANNA.file_name(os.getuid() + 1), text_of(ANNA), "its file name does not match"),
    ],
)
def test_files_that_are_no_entries_are_named_in_one_notice_and_ignored(
    record: Path, name: str, text: str, why: str
) -> None:
    take(holder("ben", OTHER))
    (record / name).write_text(text)
    (record / "z.json").write_text("{}")
    (notice,) = take(holder("carl"))
    shown = name.replace("\x1b", "\\x1b")
    start = (
        f"warning: ignored 2 files in the GPU record {record} that `lab` did not write: {shown}: "
    )
    assert notice.startswith(start)
    assert re.search(why, notice.removeprefix(start))
    refused(holder("dora", OTHER), "'ben'")
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


@pytest.mark.parametrize(
    ("error", "fails"),
    [
        (PermissionError(13, "no"), False),  # its owner hides it
        (BlockingIOError(11, "leased"), False),
        (OSError(errno.EIO, "Input/output error"), True),  # the disk fails
    ],
)
def test_a_file_that_cannot_be_read(
    record: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, fails: bool
) -> None:
    def fail(*_: object) -> str:
        raise error

    take(holder("ben", OTHER))
    monkeypatch.setattr(gpu_record, "read_regular", fail)
    if fails:
        refused(ANNA, rf"{record}/ben\.\w+\.json cannot be read: Input/output")
        take(ANNA, share=True)
    else:
        (notice,) = take(ANNA)
        assert notice.endswith(".json: it is not readable")


# ---- The directory


def test_every_user_can_use_the_directory_and_read_the_entries(record: Path) -> None:
    record.parent.chmod(0o2755)  # the directory inherits the set-group-ID bit
    before = os.umask(0o077)
    try:
        take(ANNA)
    finally:
        os.umask(before)
    take(ANNA)
    assert stat.S_IMODE(record.stat().st_mode) & 0o1777 == 0o1777
    mode = stat.S_IMODE((record / NAME).stat().st_mode)
    assert mode & 0o777 == 0o644
    if sys.platform == "linux":
        assert mode & stat.S_ISVTX  # no clean-up of old files takes it


def test_a_directory_that_cannot_be_used(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    record.symlink_to(tmp_path / "elsewhere")
    refused(ANNA, rf"cannot be used: not a directory; .*-m 1777 {record}`, or set LAB_GPU_RECORD")
    assert not list((tmp_path / "elsewhere").iterdir())
    record.unlink()
    # Its mode is kept if `lab` did not create it.
    record.mkdir(0o755)
    refused(ANNA, "cannot be used: its mode is 755, not 1777; set LAB_GPU_RECORD to a path that")
    release("local", "anna", "/state")
    assert stat.S_IMODE(record.stat().st_mode) == 0o755
    assert not list(record.iterdir())
    record.chmod(0o1777)  # as root does for all users
    take(ANNA)
    assert names(record) == ["anna"]
    monkeypatch.setenv(LAB_GPU_RECORD, "/proc/gpus")
    refused(ANNA, "/proc/gpus cannot be used: ")


def test_a_file_of_another_user_in_its_place(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:  # as a sticky directory does
        raise PermissionError

    monkeypatch.setattr(Path, "replace", refuse)
    refused(ANNA, r"\.json belongs to another user; remove it with `sudo rm")
    assert names(record) == []


# ---- Several processes


def attempt(name: str, barrier: Any) -> str:
    """In a process of its own, which lives on: hold the GPU."""
    one = holder(name)
    barrier.wait(60)
    try:
        take(one)
    except LabError as error:
        return str(error)
    return "holds"


def test_of_many_at_once_one_gets_the_gpu() -> None:
    forks = multiprocessing.get_context("fork")
    with forks.Manager() as manager, forks.Pool(6) as pool:
        barrier = manager.Barrier(6)
        users = [(f"user-{number}", barrier) for number in range(6)]
        output = pool.starmap(attempt, users, chunksize=1)
    (winner,) = (n for n, line in enumerate(output) if line == "holds")
    held_by = f"GPU {GPU} is held by environment 'user-{winner}' (local)"
    assert sum(line.startswith(held_by) for line in output) == 5
