"""Runs that a seat has not collected from the queue are in the archive of its work."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lab.backends.classroom.protocol import State
from lab.backends.process import ProcessHandle
from lab.classroom.queue import uncollected
from lab.classroom.queue.admission import project_names
from lab.classroom.queue.folder import QueueDir
from lab.classroom.queue.ledger import Entry
from lab.classroom.queue.uncollected import end_all_runs, save_runs
from lab.classroom.state import ClassDir
from lab.errors import LabError
from lab.log import shown_by
from lab.store.directory import RunDir
from lab.volume import Chunk, Request, RunSpec
from lab.volume.files import write_atomically
from lab.volume.states import State as RunState
from tests.support.agents import wait_for
from tests.support.classes import a_plan, created
from tests.support.cli import lab
from tests.support.queueing import RUN, Containers, Host, until_cancelled

OTHER = "20261124-0700-async-1111"
LEFT: Any = {"is_down": True, "volume_stays": True}  # only the run volume


def run(one: Containers, run_id: str = RUN) -> Path:
    """Submit a run, which trains to its end; return its directory on the volume."""
    one.submit(Request(run_id, RunSpec("async"), one.cluster_spec(), 100.0))
    for thread in one.threads:
        thread.join()
    return one.volume.run(run_id)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """The environments that are left on the host."""
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    found = Host(tmp_path / "volumes")
    monkeypatch.setattr(uncollected, "ComposeBackend", lambda: found)
    return found


@pytest.fixture
def folder(host: Host) -> ClassDir:
    return created(a_plan(gpus={"queue": True}))


def entries(folder: ClassDir, *found: Entry) -> None:
    QueueDir(folder).ledger().write(found)


def entry(project: str, seat: str = "ada", state: State = State.ENDED, **more: Any) -> Entry:
    return Entry(id=project, seat=seat, name="m", project=project, needs=1, state=state, **more)


def saved(folder: ClassDir, path: Path) -> tuple[Path, list[str]]:
    """The directory with what is in the archive, and the lines for the teacher."""
    lines: list[str] = []
    place = path / "unpacked"
    with zipfile.ZipFile(path / "work.zip", "w") as archive, shown_by(lines.append):
        save_runs(folder, "ada", archive, "ada/queue")
    with zipfile.ZipFile(path / "work.zip") as archive:
        assert archive.testzip() is None
        archive.extractall(place)
    return place / "ada/queue", lines


def test_a_run_that_is_only_on_its_volume_opens_as_any_run(
    host: Host, folder: ClassDir, tmp_path: Path
) -> None:
    one = host.add("kept", **LEFT)
    run(one)
    run(one, OTHER)
    one.mark_collected(OTHER, "/home/student/runs")
    for other in ("of-bob", "waits", "discarded"):
        run(host.add(other, **LEFT), "20261124-0800-async-2222")
    entries(
        folder,
        entry("kept"),
        entry("of-bob", "bob"),
        entry("waits", state=State.WAITING),
        entry("discarded", removes=True),
        entry("gone"),
    )
    store, lines = saved(folder, tmp_path)
    assert [path.name for path in store.iterdir()] == [RUN]
    assert lines == ["ada: 1 run that it had not collected, in ada/queue"]
    shown = lab(tmp_path, "show", "last", "--runs-dir", str(store))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "succeeded" in shown.stdout
    assert RunDir(store / RUN).complete()
    assert one.collected() == {OTHER: "/home/student/runs"}  # the archive may still fail
    assert not list(folder.path.glob("run-*"))


def test_runs_are_found_without_a_ledger(host: Host, folder: ClassDir, tmp_path: Path) -> None:
    run(host.add(next(project_names(folder.name, "ada")), **LEFT))
    run(host.add(next(project_names(folder.name, "bob")), **LEFT), OTHER)
    write_atomically(QueueDir(folder).path / "ledger.json", "[3]")
    store, _ = saved(folder, tmp_path)
    assert [path.name for path in store.iterdir()] == [RUN]


def test_a_run_that_a_dead_service_left_under_way_is_stopped_first(
    host: Host, folder: ClassDir, tmp_path: Path
) -> None:
    one = host.add("up", tasks_do=until_cancelled)
    one.submit(Request(RUN, RunSpec("async"), one.cluster_spec(), 100.0))
    wait_for(one.volume.status(RUN, "worker-0").exists, "the run does not begin")
    entries(folder, entry("up", state=State.UP))
    store, _ = saved(folder, tmp_path)
    assert RunDir(store / RUN).read().state is RunState.CANCELLED
    assert b"the class ends" in one.volume.cancel(RUN).read_bytes()


def test_a_run_without_its_end_counts_as_lost(host: Host, folder: ClassDir, tmp_path: Path) -> None:
    one = host.add("kept", **LEFT, tasks_do=lambda *_: None)
    (run(one) / "files/mine.txt").write_text("mine")
    entries(folder, entry("kept"))
    store, _ = saved(folder, tmp_path)
    info = RunDir(store / RUN).read()
    assert (info.state, info.reason) == (RunState.LOST, "its environment no longer runs")
    assert (store / RUN / "files/mine.txt").read_text() == "mine"


def test_only_regular_files_under_safe_names(host: Host, folder: ClassDir, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    one = host.add("kept", **LEFT)
    files = run(one) / "files"
    deep = files / Path(*["d"] * 480)
    deep.mkdir(parents=True)
    (deep / "x").write_text("deep")
    (files / "link").symlink_to(secret)
    (files / "folder").symlink_to(tmp_path)
    os.mkfifo(files / "pipe")
    (files / "\x1b[2J\\..\\evil").write_text("named")
    (files / "right\u202eleft").write_text("named")
    (files.parent / "run.json").write_text("{}")
    (files.parent / ".hidden").write_text("x")
    entries(folder, entry("kept"))
    store, _ = saved(folder, tmp_path)
    found = [path for path in store.rglob("files/*") if path.is_file()]
    assert sorted((path.name, path.read_text()) for path in found) == [
        ("%1B%5B2J%5C..%5Cevil", "named"),
        ("right_u202eleft", "named"),
    ]
    with zipfile.ZipFile(tmp_path / "work.zip") as archive:
        assert [name for name in archive.namelist() if name.endswith("d/d/x")] != []
        assert all("secret" not in name and "hidden" not in name for name in archive.namelist())
        assert all(b"secret" not in archive.read(name) for name in archive.namelist())
    info = RunDir(store / RUN).read()  # not that of the program
    assert info.run_id == RUN
    assert {each.path for each in info.left} >= {"files/link", "files/folder", "files/pipe"}


@pytest.mark.parametrize(("left", "value"), [("bytes_left", 3_000_000), ("files_left", 8)])
def test_a_student_cannot_fill_the_teachers_disk(
    host: Host,
    folder: ClassDir,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    left: str,
    value: int,
) -> None:
    one = host.add("kept", **LEFT)
    for run_id in (RUN, OTHER):
        files = run(one, run_id) / "files"
        files.mkdir(exist_ok=True)
        for number in range(5):
            with (files / f"{number}").open("wb") as sparse:
                sparse.truncate(1 << 20)
    entries(folder, entry("kept"))
    whole = uncollected._Saved
    monkeypatch.setattr(uncollected, "_Saved", lambda *given: whole(*given, **{left: value}))
    store, lines = saved(folder, tmp_path)
    assert lines[-1] == "ada: not in the archive: what its runs in the queue have beyond the limit"
    saved_files = [path for path in store.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in saved_files) < 4_000_000
    assert len(saved_files) <= 20
    assert not RunDir(store / RUN).read().collected
    assert not (store / OTHER).exists()


def test_one_bad_run_or_environment_does_not_prevent_the_others(
    host: Host, folder: ClassDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected, stream = Containers.collected, Containers.stream

    def refuse(one: Containers) -> Mapping[str, str]:
        if one.project == "broken":
            raise LabError("invalid \x1b[2J notes")
        return collected(one)

    def breaks(one: Containers, run_id: str, *given: Any, **more: Any) -> Iterator[Chunk | None]:
        if run_id == RUN:
            raise LabError("it broke off")
        return stream(one, run_id, *given, **more)

    for name in ("broken", "kept", "again"):  # the last has a run of the same name
        one = host.add(name, **LEFT)
        run(one)
        run(one, OTHER)
    entries(folder, entry("broken"), entry("kept"), entry("again"))
    monkeypatch.setattr(Containers, "collected", refuse)
    monkeypatch.setattr(Containers, "stream", breaks)
    store, lines = saved(folder, tmp_path)
    assert [path.name for path in store.iterdir()] == [OTHER]
    assert lines == [
        r"ada: not in the archive: runs of m in the queue: invalid \x1b[2J notes",
        *[f"not in the archive: run {RUN}: it broke off"] * 2,
        "ada: 1 run that it had not collected, in ada/queue",
    ]


# ---- The end of all turns


def test_the_turns_end_by_the_service_if_it_is_there(
    folder: ClassDir, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    end = Mock()
    monkeypatch.setattr(uncollected, "end_environments", end)
    end_all_runs(folder)
    end.assert_not_called()  # JupyterHub has ended
    folder.write_hub(ProcessHandle.of(os.getpid()))
    end_all_runs(folder)
    end.assert_called_once_with(folder, ["ada", "bob"], keep=True)
    end.side_effect = LabError("no answer", "try again")
    end_all_runs(folder)
    assert notices == ["warning: no answer; try again"]
