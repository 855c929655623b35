"""The directory of a class: what it keeps, and who can read it."""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lab.backends.process import ProcessHandle
from lab.classroom.config import Times
from lab.classroom.planning import ClassPlan
from lab.classroom.state import TEACHER, ClassDir, class_dirs
from lab.errors import LabError
from tests.support.classes import a_plan, certificate, created, stored


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


NOON = datetime(2026, 12, 1, 12).astimezone()
PLANS = {
    "plain": lambda folder: a_plan(),
    "everything": lambda folder: a_plan(
        2,
        {"count": 2, "share": True},
        cpus=0.5,
        tls=certificate(folder),
        times=Times.model_construct(start=NOON, end=NOON, slice=timedelta(minutes=7)),
    ),
    "queue": lambda folder: a_plan(3, {"queue": True}, cpus=None, memory=None, disk=None),
    "half of the times": lambda folder: a_plan(
        times=Times.model_construct(start=None, end=NOON, slice=timedelta(seconds=1.5))
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_class_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    found: ClassPlan = PLANS[name](tmp_path)
    folder = ClassDir(found.name)
    tokens = folder.create(stored(found))
    assert folder.stored() == stored(found)
    assert folder.tokens() == tokens
    assert [type(each) for each in folder.stored().plan.seats[0].gpus] == (
        [str] * len(found.seats[0].gpus)
    )
    assert folder.stored().plan.url == found.url


def test_every_seat_and_the_teacher_get_a_password_that_can_be_typed() -> None:
    tokens = created(a_plan(90)).tokens()
    assert set(tokens.seats) == {TEACHER, *(f"seat-{number:02}" for number in range(1, 91))}
    assert len({*tokens.seats.values(), tokens.proxy, tokens.service}) == 93
    for each in tokens.seats.values():
        # Without characters that look alike: 0 and o, 1, i and l.
        assert re.fullmatch(r"(?:[2-9a-hjkmnp-z]{4}-){2}[2-9a-hjkmnp-z]{4}", each)
    assert re.fullmatch("[0-9a-f]{64}", tokens.service)


def test_only_the_user_can_read_a_class() -> None:
    folder = created()
    folder.write_hub(ProcessHandle(1, "2", "3"))
    assert folder.path.stat().st_mode & 0o777 == 0o700
    files = [path for path in folder.path.iterdir() if path.is_file()]
    assert {path.name: path.stat().st_mode & 0o777 for path in files} == {
        "tokens.json": 0o600,
        "class.json": 0o600,
        "hub.json": 0o600,
    }


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_tokens_that_other_users_can_read_are_not_used(mode: int) -> None:
    folder = created()
    path = folder.path / "tokens.json"
    path.chmod(mode)
    with pytest.raises(LabError) as caught:
        folder.tokens()
    assert str(caught.value) == (
        f"{path}: other users can read the tokens; run `chmod 600 {path}`; for other tokens, run "
        "`lab class down` and `lab class up`"
    )
    path.chmod(0o600)
    assert TEACHER in folder.tokens().seats


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b"\xff",
        b'{"plan": {"name": "\x1b[2J"}}',
        b'{"plan": {"name": "\xed\xa0\x80"}}',
    ],
)
def test_a_damaged_class_is_reported_in_one_line(content: bytes) -> None:
    folder = created()
    path = folder.path / "class.json"
    path.write_bytes(content)
    with pytest.raises(LabError) as caught:
        folder.stored()
    line = str(caught.value)
    assert line.startswith(f"{path} cannot be read: ")
    assert line.endswith(
        "; remove the containers, networks and volumes with the label lab.class=w, or the "
        "processes of its seats, then the directory"
    )
    assert line.isprintable()


def test_a_network_or_a_time_that_is_none() -> None:
    folder = created()
    path = folder.path / "class.json"
    text = path.read_text()
    for old, new in (("10.89.0.0/28", "10.89.0.0/99"), ('"start":null', '"start":"soon"')):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(LabError, match="cannot be read"):
            folder.stored()


def test_the_classes_of_this_user(state: Path) -> None:
    assert class_dirs() == []
    folder = created()
    (state / "classes" / "b").mkdir()
    (state / "classes" / "w.lock").touch()
    assert class_dirs() == [ClassDir("b"), ClassDir("w")]
    assert not any(each.is_up for each in class_dirs())
    assert folder.lock == state / "classes" / "w.lock"


def test_a_class_is_up_while_its_jupyterhub_runs() -> None:
    folder = created()
    assert folder.hub() is None
    own = ProcessHandle.of(os.getpid())
    folder.write_hub(own)
    assert folder.hub() == own
    assert folder.is_up
    folder.write_hub(ProcessHandle(own.pid, "0", own.boot))  # a later process with the same id
    assert not folder.is_up
