"""The time of day in a job whose hosts have different clocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.records import parse_record
from lab.task.protocol import clock
from lab.task.protocol.clock import file_system_time, unix_time
from lab.task.sdk.recorder import Recorder

TICK_S = 0.1  # the clock of a file system is coarse
AHEAD_S = 60.0


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that all hosts see; it names their clock."""
    monkeypatch.setenv("LAB_CLOCK", str(tmp_path))
    yield tmp_path
    clock._zero_of.cache_clear()


@pytest.mark.parametrize("ahead_s", [AHEAD_S, -AHEAD_S])
def test_all_hosts_have_the_time_of_their_file_system(
    shared: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead_s)
    assert unix_time() == pytest.approx(right(), abs=TICK_S)
    before = unix_time()
    monkeypatch.setattr(time, "time", lambda: right() - ahead_s)
    assert 0 <= unix_time() - before < TICK_S


def test_records_have_this_time(
    shared: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + AHEAD_S)
    Recorder("worker", 0).write("event", message="")
    record = parse_record(capfd.readouterr().out)
    assert record is not None
    assert record["time_unix"] == pytest.approx(right(), abs=TICK_S)


def test_on_one_host_the_time_is_that_of_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_CLOCK", raising=False)
    monkeypatch.setattr(time, "time", lambda: 5.0)
    assert unix_time() == 5.0


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_system_time(tmp_path / "missing")
