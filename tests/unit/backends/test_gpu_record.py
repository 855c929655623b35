"""The record of the environments that hold GPUs of this host."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lab.backends import gpu_record
from lab.backends.engine import client
from lab.backends.gpu_record import Holder, hold_gpus, holder_of, release
from lab.backends.names import known
from lab.backends.registry import backends
from lab.base.errors import LabError
from lab.base.log import shown_by
from lab.base.variables import LAB_GPU_RECORD
from lab.cluster.gpu import Gpu, Inventory
from lab.cluster.placement.plan import Plan, PlannedNode, PlannedTask
from tests.support.conditions import lacking

GPU, OTHER = "GPU-00000000-1111-2222-3333-444444444444", "GPU-00000001-1111-2222-3333-444444444444"


@pytest.fixture(autouse=True)
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "gpus"
    monkeypatch.setenv(LAB_GPU_RECORD, str(path))
    return path


def holder(name: str, *gpus: str, backend: str = "local", where: str = "/state") -> Holder:
    return Holder(name, backend, where, gpus or (GPU,))


def take(one: Holder, *, share: bool = False) -> list[str]:
    """Hold the GPUs for a moment, as a boot whose environment then ends; return the notices."""
    notices: list[str] = []
    with shown_by(notices.append), hold_gpus(one, share=share):
        return notices


Up = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def up() -> Iterator[Up]:
    """Boots an environment with a process that holds the GPUs."""
    with ExitStack() as stack:

        def boot(one: Holder, *, share: bool = False) -> subprocess.Popen[bytes]:
            with hold_gpus(one, share=share) as lock:
                assert lock is not None
                process = subprocess.Popen(["sleep", "600"], pass_fds=[lock])
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield boot


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def refused(one: Holder, match: str) -> LabError:
    with pytest.raises(LabError, match=match) as caught:
        take(one)
    return caught.value


def names(record: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in record.iterdir())


def test_a_gpu_held_by_another_environment_is_refused(record: Path, up: Up) -> None:
    anna = up(holder("anna", GPU, OTHER))
    up(holder("else", "GPU-elsewhere"))
    error = refused(holder("ben", OTHER), rf"GPU {OTHER} is held by .* 'anna' \(local\) of \S+ ")
    assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d; wait for `lab down anna`", str(error))
    assert "--share" in error.fix
    assert error.exit_code == 1
    assert names(record) == ["anna", "else"]
    carl = up(holder("carl", OTHER), share=True)
    end(anna)
    release("local", "anna", "/state")
    # A shared GPU is held by both.
    refused(holder("ben", OTHER), "'carl'")
    # The kernel releases the lock of a process that is killed.
    end(carl)
    take(holder("ben", OTHER))
    assert names(record) == ["ben", "else"]


def test_a_gpu_is_held_during_a_boot() -> None:
    with hold_gpus(holder("anna"), share=False):
        refused(holder("ben"), "'anna'")
    take(holder("ben"))


def test_an_environment_is_no_conflict_with_itself(record: Path, up: Up) -> None:
    up(holder("anna"))
    take(holder("anna", GPU, OTHER))
    up(holder("anna", OTHER))
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


def test_an_environment_without_a_process_or_containers_holds_nothing(record: Path) -> None:
    assert {each.name for each in backends()} == set(known())
    for backend in known().keys() - {"compose"}:
        take(holder("anna", backend=backend))
        take(holder("ben"))
        assert names(record) == ["ben"]
        release("local", "ben", "/state")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Mock:
    found = Mock(id=Mock(return_value="engine-1"), container=Mock(status="running"))
    found.containers = lambda label: [found.container] if label.endswith("=anna") else []
    monkeypatch.setattr(client, "Engine", lambda: found)
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
    take(holder("anna", backend="compose", where="engine-1"))
    if why:
        refused(holder("ben"), why)
    take(holder("ben"), share=bool(why))


def test_a_backend_of_a_later_version_holds_its_gpus(record: Path) -> None:
    take(replace(holder("anna"), backend="later"))
    refused(holder("ben"), r"'anna' \(later\) .* cannot check whether it is still up")


@pytest.mark.usefixtures("engine")
def test_the_newest_entry_of_an_environment_counts(record: Path) -> None:
    """Two users of one engine can boot the same environment, one after the other."""
    if os.getuid() != 0:
        lacking("only root can be two users")
    old = holder("anna", GPU, backend="compose", where="engine-1")
    take(old)
    path = record / "anna.of-another-user.json"
    path.write_text(text_of(replace(old, gpus=(OTHER,))))
    os.chown(path, 12345, 12345)
    later = old.path().stat().st_mtime + 1
    os.utime(path, (later, later))
    take(holder("ben", GPU))
    refused(holder("carl", OTHER), r"'anna' \(compose\) of user 12345 since ")


def test_indices_are_uuids_where_a_driver_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Inventory("uuid", (Gpu(0, GPU), Gpu(1, OTHER)), 2, None)
    monkeypatch.setattr(gpu_record, "host_gpus", lambda: host.gpus)
    task = PlannedTask("worker", 0, "tf1", 2222, ("1", "7"))
    plan = Plan("anna", "index", "0" * 64, (PlannedNode("tf1"),), (task,))
    assert holder_of(plan, backend="local", where="/s") == holder("anna", OTHER, "7", where="/s")


def text_of(one: Holder, **changes: object) -> str:
    return json.dumps({**asdict(one), **changes})


ANNA = holder("anna")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Input data was truncated"),
        ("[" * 20_000, ""),
        ('{"x": ' * 9_000, ""),
        ("x" * 70_000, ""),
        (text_of(ANNA, gpus=[1]), r"Expected `str`, got `int` - at `\$.gpus"),
    ],
)
def test_files_that_are_no_entries_are_named_and_ignored(
    record: Path, up: Up, text: str, why: str
) -> None:
    up(holder("ben", OTHER))
    (record / "a\x1b.json").write_text(text)
    (notice,) = take(holder("carl"))
    start = f"warning: ignored {record}/a\\x1b.json, which is not an entry of the GPU record: "
    assert notice.startswith(start)
    assert re.search(why, notice.removeprefix(start))
    refused(holder("dora", OTHER), "'ben'")
    assert (record / "a\x1b.json").exists()


def test_a_link_a_pipe_and_a_directory_are_no_entries(record: Path, tmp_path: Path, up: Up) -> None:
    up(holder("ben", OTHER))
    precious = tmp_path / "precious"
    precious.write_text("mine")
    path = ANNA.path()
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
        (PermissionError(13, "Permission denied"), False),  # its owner hides it
        (OSError(errno.EIO, "Input/output error"), True),  # the disk fails
    ],
)
def test_a_file_that_cannot_be_read(
    record: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, fails: bool
) -> None:
    take(holder("ben", OTHER))
    monkeypatch.setattr(gpu_record, "open_regular", Mock(side_effect=error))
    if fails:
        refused(ANNA, f"{record} cannot be used: input/output error")
        take(ANNA, share=True)
    else:
        (notice,) = take(ANNA)
        assert "Permission denied" in notice


def test_every_user_can_use_the_directory_and_read_the_entries(record: Path) -> None:
    record.parent.chmod(0o2755)  # the directory inherits the set-group-ID bit
    before = os.umask(0o077)
    try:
        take(ANNA)
    finally:
        os.umask(before)
    take(ANNA)
    assert stat.S_IMODE(record.stat().st_mode) & 0o1777 == 0o1777
    assert stat.S_IMODE(ANNA.path().stat().st_mode) == 0o1644


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
    take(ANNA)
    assert stat.S_IMODE(record.stat().st_mode) == 0o755
    monkeypatch.setattr(Path, "replace", Mock(side_effect=PermissionError(13, "Not permitted")))
    refused(ANNA, f"{record} cannot be used: not permitted")
    monkeypatch.setenv(LAB_GPU_RECORD, "/proc/gpus")
    refused(ANNA, "/proc/gpus cannot be used: ")


def attempt(name: str, barrier: Any) -> str:
    """In a process of its own, which lives on: hold the GPU until all have tried."""
    barrier.wait(60)
    try:
        with hold_gpus(holder(name), share=False):
            barrier.wait(60)
            return "holds"
    except LabError as error:
        barrier.wait(60)
        return str(error)


def test_of_many_at_once_one_gets_the_gpu() -> None:
    forks = multiprocessing.get_context("fork")
    with forks.Manager() as manager, forks.Pool(6) as pool:
        barrier = manager.Barrier(6)
        users = [(f"user-{number}", barrier) for number in range(6)]
        output = pool.starmap(attempt, users, chunksize=1)
    (winner,) = (n for n, line in enumerate(output) if line == "holds")
    held_by = f"GPU {GPU} is held by environment 'user-{winner}' (local)"
    assert sum(line.startswith(held_by) for line in output) == 5
