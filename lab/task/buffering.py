"""A buffer in memory for lines that cannot be written to the run volume for a while.

The volume may be full, or a disk fault has made it read-only. The program continues meanwhile.
The agent writes the buffered lines in order as soon as the volume accepts them. The task fails if
that takes longer than `REFUSED_S`.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Final

from lab.task.appending import Appender

REFUSED_S: Final = 8.0
"""Seconds that an agent waits for a volume that refuses writes. This is shorter than the time after
which the other agents count a silent agent as lost."""

BUFFER_BYTES: Final = 16 * 2**20
"""Bytes of one file that are buffered. Lines beyond that are dropped and counted."""


class BufferedAppender:
    """An `Appender` that buffers lines while the volume refuses writes.

    Attributes:
        lost: The number of lines that were dropped, or were still buffered at `close`.
    """

    def __init__(self, file: Appender, limit: int = BUFFER_BYTES) -> None:
        """Start with an empty buffer.

        Args:
            file: The file that receives the lines.
            limit: The size of the buffer in bytes.
        """
        self._file = file
        self._limit = limit
        self._waiting = bytearray()
        self._refused_at: float | None = None
        self._error: OSError | None = None
        self.lost = 0

    @property
    def altered(self) -> bool:
        """As of the `Appender`."""
        return self._file.altered

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
            self._file.append(bytes(self._waiting))
        except OSError as error:
            self._error = error
            self._refused_at = self._refused_at or time.monotonic()
            return
        self._waiting.clear()
        self._refused_at = self._error = None

    def close(self) -> None:
        """Close the file. Lines that are still buffered are lost.

        Raises:
            OSError: Lines are lost, or the file could not be synchronized with the disk.
        """
        self.flush()
        self.lost += self._waiting.count(b"\n")
        self._file.close()
        if self._waiting and self._error is not None:
            raise self._error


def is_read_only(folder: Path) -> bool:
    """Return whether the file system of a directory is read-only.

    This changes the directory's time stamp. The flags of `statvfs` are not enough: on newer kernels
    (seen on Linux 6.18) ext4 does not set them after a disk fault.
    """
    try:
        os.utime(folder)
    except OSError as error:
        return error.errno == errno.EROFS
    return False
