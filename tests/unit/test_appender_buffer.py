"""Lines for a volume that refuses them: they wait in order, and dropped lines are counted."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.task.agent import appender
from lab.task.agent.appender import Appender
from lab.task.protocol.files import is_read_only


class Volume:
    """Makes `os.write` fail as long as the test wants."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None  # bytes that it still takes
        self.now = 100.0
        self._write = os.write
        patch.setattr(os, "write", self.write)
        patch.setattr(appender, "time", SimpleNamespace(monotonic=lambda: self.now))

    def write(self, descriptor: int, data: bytes) -> int:
        if self.room is None:
            return self._write(descriptor, data)
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self._write(descriptor, bytes(data)[: self.room])
        self.room -= taken
        return taken


@pytest.fixture
def volume(monkeypatch: pytest.MonkeyPatch) -> Volume:
    return Volume(monkeypatch)


def test_refused_lines_are_written_in_order(tmp_path: Path, volume: Volume) -> None:
    path = tmp_path / "file"
    file = Appender(path)
    file.append(b"one\n")
    volume.room = 2
    file.append(b"two\n")
    assert path.read_bytes() == b"one\n"  # no torn line
    file.append(b"three\n")
    assert (file.fault, file.is_waiting) == (None, True)
    volume.room = None
    file.flush()
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    volume.now += 100
    assert (file.fault, file.is_waiting) == (None, False)
    file.close()
    assert file.lost == 0


def test_refusing_too_long_is_a_fault(tmp_path: Path, volume: Volume) -> None:
    file = Appender(tmp_path / "file")
    volume.room = 0
    file.append(b"one\n")
    volume.now += appender.REFUSED_S - 1
    file.append(b"two\n")
    assert file.fault is None
    volume.now += 1
    assert file.fault is not None
    assert file.fault.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        file.close()
    assert file.lost == 2


def test_excess_lines_are_counted(tmp_path: Path, volume: Volume) -> None:
    path = tmp_path / "file"
    file = Appender(path, limit=10)
    volume.room = 0
    file.append(b"one\ntwo\n")
    file.append(b"three\nfour\n")
    file.append(b"5\n")
    assert file.lost == 2
    volume.room = None
    file.close()
    assert (path.read_bytes(), file.lost) == (b"one\ntwo\n5\n", 2)


def test_torn_line_that_cannot_be_removed(
    tmp_path: Path, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    file = Appender(path)
    truncate = os.ftruncate

    def refuse(_descriptor: int, _size: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "ftruncate", refuse)
    volume.room = 2
    file.append(b"one\n")
    assert path.read_bytes() == b"on"
    monkeypatch.setattr(os, "ftruncate", truncate)
    volume.room = None
    file.close()
    assert path.read_bytes() == b"one\n"


@pytest.mark.parametrize(("number", "expected"), [(errno.EROFS, True), (errno.EACCES, False)])
def test_a_read_only_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: bool
) -> None:
    assert not is_read_only(tmp_path)
    assert not is_read_only(tmp_path / "nothing")

    def refuse(_path: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "utime", refuse)
    assert is_read_only(tmp_path) is expected
