"""Files that an agent alone appends to, and whether that is true.

An agent and the programs share one user, so a path is no boundary: a program can write to the
records of any task, or remove them. So the agent remembers how long each of its files is and what
it holds, and looks at the end whether that is what is there.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.task.files import replacing

if TYPE_CHECKING:
    from hashlib import _Hash

_PIECE: Final = 1 << 20


@dataclass(slots=True)
class Written:
    """All that was appended to a file, by all attempts of a program.

    Attributes:
        size: Bytes.
        digest: SHA-256 of them, which goes on with each append.
    """

    size: int = 0
    digest: _Hash = field(default_factory=hashlib.sha256)

    @classmethod
    def of(cls, path: Path) -> Written:
        """What a file holds already; nothing where there is no regular file."""
        found = cls()
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return found
        try:
            while stat.S_ISREG(os.fstat(descriptor).st_mode) and (
                piece := os.pread(descriptor, _PIECE, found.size)
            ):
                found.size += len(piece)
                found.digest.update(piece)
        finally:
            os.close(descriptor)
        return found

    @property
    def sha256(self) -> str:
        """The digest in hexadecimal."""
        return self.digest.hexdigest()


class Appender:
    """A file that only grows, by whole lines also where the disk gets full.

    Attributes:
        altered: Whether another process has changed, moved or removed the file; known once it is
            closed.
    """

    def __init__(self, path: Path, written: Written | None = None) -> None:
        """Open the file.

        Args:
            path: It.
            written: What was appended to it before, and will be; None: nothing.

        Raises:
            OSError: It cannot be opened: a directory is in its place.
        """
        self._path = path
        self._written = Written() if written is None else written
        self._is_torn = False  # half a line stands at its end
        self.altered = False
        path.parent.mkdir(exist_ok=True)
        if _is_something_else(path):
            path.unlink()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        self._descriptor = os.open(path, flags, 0o644)

    def append(self, data: bytes) -> None:
        """Write whole lines.

        Raises:
            OSError: They could not be written; what was written of them is taken back.
        """
        view = memoryview(data)
        if self._is_torn:
            self._take_back()
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            self._is_torn = True
            self._take_back()
            raise
        self._written.size += len(data)
        self._written.digest.update(data)

    def close(self) -> None:
        """Put it on the disk, see whether it holds what was appended, and close it.

        A file that was moved or removed, and not changed, is put back to its place.

        Raises:
            OSError: The disk did not take it.
        """
        try:
            if self._is_torn:
                self._take_back()
            os.fsync(self._descriptor)
            is_whole = self._is_whole()
            is_there = self._is_there()
            self.altered = not (is_whole and is_there)
            if is_whole and not is_there:
                self._put_back()
        finally:
            os.close(self._descriptor)

    def _take_back(self) -> None:
        os.ftruncate(self._descriptor, self._written.size)
        self._is_torn = False

    def _is_whole(self) -> bool:
        """Whether the open file holds what was appended, and nothing else."""
        if os.fstat(self._descriptor).st_size != self._written.size:
            return False
        digest, at = hashlib.sha256(), 0
        while piece := os.pread(self._descriptor, _PIECE, at):
            digest.update(piece)
            at += len(piece)
        return digest.digest() == self._written.digest.digest()

    def _is_there(self) -> bool:
        """Whether the path still leads to the open file."""
        try:
            found, mine = os.lstat(self._path), os.fstat(self._descriptor)
        except OSError:
            return False
        return os.path.samestat(found, mine)

    def _put_back(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        with replacing(self._path) as file:
            at = 0
            while piece := os.pread(self._descriptor, _PIECE, at):
                at += file.write(piece)


def _is_something_else(path: Path) -> bool:
    """Whether a link, a pipe or a device is where a file has to be."""
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
