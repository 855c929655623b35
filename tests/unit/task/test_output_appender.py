"""Files that only the agent appends to: on a volume that refuses lines, they wait in order."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.protocol.volume import files
from lab.protocol.volume.files import REFUSED_S, is_read_only
from lab.protocol.volume.status import digest_of
from lab.task.agent.output import Appender
from tests.support.fakes import os_error, raising

DATA = b"one\ntwo\n"


class Volume:
    """Makes `os.write` fail as long as the test wants."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None  # bytes that it still takes
        self.now = 100.0
        self._write = os.write
        patch.setattr(os, "write", self.write)
        patch.setattr(files, "time", SimpleNamespace(monotonic=lambda: self.now))

    def write(self, descriptor: int, data: bytes) -> int:
        if self.room is None:
            return self._write(descriptor, data)
        if not self.room:
            raise os_error(errno.ENOSPC)
        taken = self._write(descriptor, bytes(data)[: self.room])
        self.room -= taken
        return taken


@pytest.fixture
def volume(monkeypatch: pytest.MonkeyPatch) -> Volume:
    return Volume(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks/file"


def test_further_attempts_append_and_continue_the_digest(path: Path) -> None:
    digest = digest_of(path)
    for line in (b"one\n", b"two\n"):
        file = Appender(path, digest)
        file.append(line)
        file.close()
    assert path.read_bytes() == DATA
    assert digest.hexdigest() == digest_of(path).hexdigest() == hashlib.sha256(DATA).hexdigest()


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("elsewhere"), os.mkfifo])
def test_a_link_or_a_pipe_is_refused(path: Path, make: Callable[[Path], None]) -> None:
    path.parent.mkdir()
    make(path)
    with pytest.raises(OSError, match=r"Too many levels|No such device"):
        Appender(path)
    assert not path.with_name("elsewhere").exists()


def test_refused_lines_are_written_in_order(path: Path, volume: Volume) -> None:
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


def test_refusing_too_long_is_a_fault(path: Path, volume: Volume) -> None:
    file = Appender(path)
    volume.room = 0
    file.append(b"one\n")
    volume.now += REFUSED_S - 1
    file.append(b"two\n")
    assert file.fault is None
    volume.now += 1
    assert file.fault is not None
    with pytest.raises(OSError, match="No space"):
        file.close()
    assert (file.lost, path.read_bytes()) == (2, b"")


def test_excess_lines_are_counted(
    path: Path, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.task.agent.output.BUFFER_BYTES", 10)
    file = Appender(path)
    volume.room = 0
    file.append(DATA)
    file.append(b"three\nfour\n")
    file.append(b"5\n")
    assert file.lost == 2
    volume.room = None
    file.close()
    assert (path.read_bytes(), file.lost) == (DATA + b"5\n", 2)


def test_torn_line_that_cannot_be_removed(
    path: Path, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Appender(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", raising(os_error(errno.EROFS)))
        volume.room = 2
        file.append(b"one\n")
    assert path.read_bytes() == b"on"
    volume.room = None
    file.close()
    assert path.read_bytes() == b"one\n"


@pytest.mark.parametrize(("number", "expected"), [(errno.EROFS, True), (errno.EACCES, False)])
def test_a_read_only_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: bool
) -> None:
    assert not is_read_only(tmp_path)
    assert not is_read_only(tmp_path / "nothing")
    monkeypatch.setattr(os, "utime", raising(os_error(number)))
    assert is_read_only(tmp_path) is expected
