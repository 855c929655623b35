"""Statuses that cannot be read: the task counts as failed, after a while, with its own cause."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.backends.recorded import EnvironmentDir
from lab.protocol.volume import Request, RunSpec, TaskStatus, Volume
from lab.protocol.volume import status as statuses
from lab.protocol.volume.control import state_of, submit
from lab.protocol.volume.files import REFUSED_S
from lab.protocol.volume.states import Cause, State
from lab.protocol.volume.status import Statuses, read_status, write_status
from lab.task.agent.agent import RequestQueue
from lab.task.agent.agent_log import AgentLog
from lab.task.sdk.program import ended_tasks
from tests.support.fakes import Clock, os_error, raising

REQUEST = Request("r1", RunSpec("async"), {"worker": ["a:1", "b:1"]})
MINE, OTHER = "worker-0", "worker-1"


def empty(path: Path) -> None:
    path.write_text("")


def truncated(path: Path) -> None:
    os.truncate(path, 20)


def missing(path: Path) -> None:
    path.unlink()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def unknown_key(path: Path) -> None:
    path.write_text(path.read_text().replace('"attempt"', '"newer": 1, "attempt"'))


def no_directory(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.touch()


DAMAGES = [empty, truncated, missing, pipe, directory, unknown_key, no_directory]


@pytest.fixture
def place(tmp_path: Path) -> EnvironmentDir[Any]:
    made = EnvironmentDir(tmp_path)
    submit(Volume(made.runs), REQUEST)
    return made


def written(volume: Volume, state: State, **fields: object) -> None:
    for task in REQUEST.tasks():
        status = TaskStatus(task, state, **fields)
        write_status(volume.status("r1", task), status)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_with_an_unreadable_status_has_ended_and_is_kept(
    place: EnvironmentDir[Any], damage: Callable[[Path], None]
) -> None:
    volume = Volume(place.runs)
    written(volume, State.SUCCEEDED)
    place.kept.touch()
    path = volume.status("r1", MINE)
    damage(path)
    found = read_status(path, MINE)
    assert (found.task, found.state, found.cause) == (MINE, State.FAILED, Cause.UNREADABLE)
    assert found.reason.startswith("its status cannot be read: ")
    assert state_of(volume, REQUEST) is State.FAILED
    assert RequestQueue(volume, MINE, AgentLog(os.open(os.devnull, os.O_WRONLY))).next() is None
    submit(volume, Request("r2", RunSpec("sync"), REQUEST.cluster))  # not refused as busy
    place.clear()
    assert volume.run("r1").is_dir()
    assert volume.request("r1").is_file()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made)
    return made


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_watched_status_stays_until_it_cannot_be_read_for_a_while_and_counts_again(
    place: EnvironmentDir[Any], clock: Clock, damage: Callable[[Path], None]
) -> None:
    volume = Volume(place.runs)
    written(volume, State.TRAINING)
    watched = Statuses(volume, "r1", REQUEST.tasks())
    assert {each.state for each in watched.refresh().values()} == {State.TRAINING}
    watched.refresh()
    path = volume.status("r1", MINE)
    kept = path.parent.with_name("kept")
    shutil.copytree(path.parent, kept, copy_function=os.link)
    damage(path)
    for passed_s in (0.0, REFUSED_S - 0.1):
        clock.now = 100.0 + passed_s
        assert watched.refresh()[MINE].state is State.TRAINING
    clock.now = 100.0 + REFUSED_S
    assert watched.refresh()[MINE].cause is Cause.UNREADABLE
    if damage in (missing, pipe, directory, no_directory):
        path.parent.rename(path.parent.with_name("damaged"))
        kept.rename(path.parent)  # the same file: its time stamp is the same, too
        assert watched.refresh()[MINE].state is State.TRAINING


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ENFILE])
def test_a_short_read_error_changes_no_watched_status(
    place: EnvironmentDir[Any], clock: Clock, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    volume = Volume(place.runs)
    watched = Statuses(volume, "r1", REQUEST.tasks())
    watched.refresh()
    written(volume, State.TRAINING, global_step=7)
    with monkeypatch.context() as patch:
        patch.setattr(statuses, "read_regular", raising(os_error(number)))
        for passed_s in (0.0, REFUSED_S - 1):
            clock.now += passed_s
            before = watched.refresh()[MINE]
            assert (before.cause, before.global_step) == (None, None)
    assert watched.refresh()[MINE].global_step == 7


def test_a_status_with_a_read_error_is_unknown_at_first(
    place: EnvironmentDir[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statuses, "read_regular", raising(os_error(errno.ESTALE)))
    volume = Volume(place.runs)
    with pytest.raises(OSError, match=r"[Ss]tale"):
        read_status(volume.status("r1", MINE), MINE)
    with pytest.raises(OSError, match=r"[Ss]tale"):
        Statuses(volume, "r1", REQUEST.tasks()).refresh()
    # A program that waits for the ends of other tasks asks again.
    monkeypatch.setenv("LAB_RUN_DIR", str(volume.run("r1")))
    assert ended_tasks() == set()
