"""Files to which only the agent appends, with a check that no other process changed them.

An agent and the programs run as the same user, so a program can change or remove the records of
any task. So the agent stores the size and the digest of its files, and compares them at the end.

The volume may be full, or a disk fault has made it read-only. The program continues meanwhile. The
agent buffers the lines in memory and writes them in order as soon as the volume accepts them. The
task fails if that takes longer than `REFUSED_S`.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.task.protocol.files import REFUSED_S, append_whole, atomic_writer, open_regular

if TYPE_CHECKING:
    from hashlib import _Hash

BUFFER_BYTES: Final = 16 * 2**20
"""Bytes of one file that are buffered. Lines beyond that are dropped and counted."""

_PIECE: Final = 1 << 20


@dataclass(slots=True)
class AppendedContent:
    """The size and digest of everything that all attempts of a program appended to a file.

    Attributes:
        size: The number of bytes.
        digest: The SHA-256 object; each append updates it.
    """

    size: int = 0
    digest: _Hash = field(default_factory=hashlib.sha256)

    @classmethod
    def of(cls, path: Path) -> AppendedContent:
        """The content of an existing file; empty if there is no regular file."""
        try:
            with open_regular(path) as file:
                return cls._of(file.fileno())
        except (OSError, ValueError):
            return cls()

    @classmethod
    def _of(cls, descriptor: int) -> AppendedContent:
        found = cls()
        for piece in _pieces(descriptor):
            found.add(piece)
        return found

    def add(self, data: bytes | bytearray) -> None:
        """Add appended bytes."""
        self.size += len(data)
        self.digest.update(data)

    def is_in(self, descriptor: int) -> bool:
        """Whether an open file has exactly this content."""
        same_size = os.fstat(descriptor).st_size == self.size
        return same_size and self._of(descriptor).sha256 == self.sha256

    @property
    def sha256(self) -> str:
        """The digest in hexadecimal."""
        return self.digest.hexdigest()


class Appender:
    """A file that only grows, by whole lines even if the disk is full.

    Attributes:
        altered: Whether another process has changed, moved or removed the file; known after
            `close`.
        lost: The number of lines that were dropped, or were still buffered at `close`.
    """

    def __init__(
        self, path: Path, written: AppendedContent | None = None, *, limit: int = BUFFER_BYTES
    ) -> None:
        """Open the file.

        Args:
            path: The file's path.
            written: The content so far; each append updates it. None: empty.
            limit: The size of the buffer in bytes.

        Raises:
            OSError: It cannot be opened, for example because it is a directory.
        """
        self._path = path
        self._written = AppendedContent() if written is None else written
        self._limit = limit
        self._waiting = bytearray()
        self._refused_at: float | None = None
        self._error: OSError | None = None
        self._is_torn = False  # the file may end with an incomplete line
        self.altered = False
        self.lost = 0
        path.parent.mkdir(exist_ok=True)
        if _is_something_else(path):
            path.unlink()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        self._descriptor = os.open(path, flags, 0o644)

    @property
    def fault(self) -> OSError | None:
        """The last error, if writes have failed for `REFUSED_S`; otherwise None."""
        lasted = self._refused_at is not None and time.monotonic() - self._refused_at >= REFUSED_S
        return self._error if lasted else None

    @property
    def is_waiting(self) -> bool:
        """Whether lines are buffered."""
        return bool(self._waiting)

    def append(self, data: bytes) -> None:
        """Write whole lines now, or buffer them."""
        if len(self._waiting) + len(data) > self._limit:
            self.lost += data.count(b"\n")
        else:
            self._waiting += data
        self.flush()

    def flush(self) -> None:
        """Try to write the buffered lines."""
        if not self._waiting:
            return
        try:
            self._take_back()
            self._is_torn = True
            append_whole(self._descriptor, bytes(self._waiting), self._written.size)
        except OSError as error:
            self._error = error
            self._refused_at = self._refused_at or time.monotonic()
            return
        self._is_torn = False
        self._written.add(self._waiting)
        self._waiting.clear()
        self._refused_at = self._error = None

    def close(self) -> None:
        """Flush the file to the disk, compare it with what was appended, and close it.

        Lines that are still buffered are lost. A file that was moved or removed but not changed is
        written again at its path.

        Raises:
            OSError: Lines are lost, or the disk refused the file.
        """
        self.flush()
        self.lost += self._waiting.count(b"\n")
        try:
            self._take_back()
            os.fsync(self._descriptor)
            is_whole = self._written.is_in(self._descriptor)
            is_there = self._is_there()
            self.altered = not (is_whole and is_there)
            if is_whole and not is_there:
                self._put_back()
        finally:
            os.close(self._descriptor)
        if self._waiting and self._error is not None:
            raise self._error

    def _take_back(self) -> None:
        if self._is_torn:
            os.ftruncate(self._descriptor, self._written.size)
            self._is_torn = False

    def _is_there(self) -> bool:
        """Whether the path still refers to the open file."""
        try:
            found, mine = os.lstat(self._path), os.fstat(self._descriptor)
        except OSError:
            return False
        return os.path.samestat(found, mine)

    def _put_back(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        with atomic_writer(self._path) as file:
            file.writelines(_pieces(self._descriptor))


def _pieces(descriptor: int) -> Iterator[bytes]:
    """The content of an open file, independent of its position."""
    at = 0
    while piece := os.pread(descriptor, _PIECE, at):
        yield piece
        at += len(piece)


def _is_something_else(path: Path) -> bool:
    """Whether the path is a link, a pipe or a device instead of a file."""
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
