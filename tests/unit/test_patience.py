"""The patience with a run store that refuses writes."""

from __future__ import annotations

import errno
import os

import pytest

from lab.run import patience
from lab.run.patience import REFUSED_S, patiently


class Clock:
    """A clock that only sleeping advances, and the action itself."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(patience, "time", made)
    return made


def refuse(number: int = errno.ENOSPC) -> None:
    raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_disk_that_stays_full_is_an_error(clock: Clock, number: int) -> None:
    notices: list[str] = []
    waits: list[float] = []
    with pytest.raises(OSError, match=os.strerror(number)):
        patiently(lambda: refuse(number), notices.append, lambda: waits.append(clock.now))
    assert clock.now - 1000 == REFUSED_S
    assert len(waits) == REFUSED_S
    assert len(notices) == 1
    assert os.strerror(number).lower() in notices[0]


def test_each_refusal_has_the_whole_time(clock: Clock) -> None:
    """Between the second and the third try, the disk accepts writes for an hour."""
    notices: list[str] = []

    def action() -> str:
        if len(tries) == 2:
            clock.sleep(3600)
        tries.append(clock.now)
        if len(tries) < 20:
            refuse()
        return "done"

    tries: list[float] = []
    assert patiently(action, notices.append) == "done"
    assert len(notices) == 2


def test_a_disk_that_accepts_writes_between_refusals_is_waited_for(clock: Clock) -> None:
    """Each try writes for ten seconds before the disk is full again."""
    tries: list[float] = []

    def action() -> str:
        tries.append(clock.now)
        if len(tries) == 20:
            return "done"
        clock.sleep(10)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert patiently(action, lambda _line: None, size=lambda: len(tries)) == "done"


def test_another_error_is_raised_at_once(clock: Clock) -> None:
    with pytest.raises(PermissionError):
        patiently(lambda: refuse(errno.EACCES), pytest.fail)
    assert clock.now == 1000
