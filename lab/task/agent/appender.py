"""Files to which only the agent appends.

The volume may be full, or a disk fault has made it read-only. The program continues meanwhile. The
agent buffers the lines in memory and writes them in order as soon as the volume accepts them. The
task fails if that takes longer than `REFUSED_S`.

The agent computes a running digest, by which the client checks the records that it has collected.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.volume.files import REFUSED_S, Patience, append_whole

if TYPE_CHECKING:
    from hashlib import _Hash


BUFFER_BYTES: Final = 16 * 2**20
"""Bytes of one file that are buffered. Lines beyond that are dropped and counted."""


class Appender:
    """A file that only grows, by whole lines even if the disk is full.

    Attributes:
        lost: The number of lines that were dropped, or were still buffered at `close`.
    """

    def __init__(
        self, path: Path, digest: _Hash | None = None, *, limit: int = BUFFER_BYTES
    ) -> None:
        """Open the file.

        Args:
            path: The file's path.
            digest: The digest of the content so far; each append updates it. None: none is needed.
            limit: The size of the buffer in bytes.

        Raises:
            OSError: It cannot be opened, for example because it is a directory or a link.
        """
        self._digest = digest
        self._limit = limit
        self._waiting = bytearray()
        self._patience = Patience(REFUSED_S)
        self._error: OSError | None = None
        self._is_torn = False  # the file may end with an incomplete line
        self.lost = 0
        path.parent.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        self._descriptor = os.open(path, flags, 0o644)
        self._size = os.fstat(self._descriptor).st_size

    @property
    def fault(self) -> OSError | None:
        """The last error, if writes have failed for `REFUSED_S`; otherwise None."""
        return self._error if self._patience.is_over else None

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
            append_whole(self._descriptor, bytes(self._waiting), self._size)
        except OSError as error:
            self._error = error
            self._patience.fail(error)
            return
        self._is_torn = False
        self._size += len(self._waiting)
        if self._digest is not None:
            self._digest.update(self._waiting)
        self._waiting.clear()
        self._error = None
        self._patience.succeed()

    def close(self) -> None:
        """Flush the file to the disk, and close it. Lines that are still buffered are lost.

        Raises:
            OSError: Lines are lost, or the disk refused the file.
        """
        self.flush()
        self.lost += self._waiting.count(b"\n")
        try:
            self._take_back()
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)
        if self._waiting and self._error is not None:
            raise self._error

    def _take_back(self) -> None:
        if self._is_torn:
            os.ftruncate(self._descriptor, self._size)
            self._is_torn = False
