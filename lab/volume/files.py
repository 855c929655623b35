"""Read untrusted files safely, and write files atomically."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

MAX_BYTES: Final = 64 << 20
"""The maximum size of a JSON file of a run, in bytes."""

REFUSED_S: Final = 8.0
"""Seconds to wait for a volume that refuses reads or writes. This is shorter than the time after
which the other agents declare an agent without heartbeat lost."""


class Patience:
    """A context that suppresses the errors of a volume, until they have lasted `REFUSED_S`."""

    def __init__(self, suppressed: Callable[[OSError], None]) -> None:
        """Begin without an error.

        Args:
            suppressed: Called with the first error of each series.
        """
        self._suppressed = suppressed
        self._since: float | None = None

    def __enter__(self) -> None:
        """Begin one more try."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        """Return whether the error is suppressed; a try without an error ends the count."""
        if not isinstance(error, OSError):
            self._since = None
            return False
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._suppressed(error)
        return now - self._since < REFUSED_S


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; do not follow a link or block on a pipe.

    Raises:
        FileNotFoundError: The file is missing.
        ValueError: The path is not a regular file.
        OSError: The file cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENXIO}:  # a link, a socket
            raise
        raise ValueError("it is not a regular file") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a regular file; see `open_regular`.

    Raises:
        FileNotFoundError: The file is missing.
        ValueError: The path is not a regular file, or is larger than the limit, or is not UTF-8.
        OSError: The file cannot be read.
    """
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"it has more than {max_bytes:,} bytes")
    return data.decode("utf-8")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, in several calls if necessary.

    Raises:
        OSError: A write failed; a part of the bytes may be written.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def append_whole(descriptor: int, data: bytes, size: int) -> None:
    """Append all bytes to an open file, or nothing.

    Args:
        descriptor: The file, open for appending.
        data: The bytes to append.
        size: The file's size before; it is restored if a write fails.

    Raises:
        OSError: A write failed.
    """
    try:
        write_all(descriptor, data)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


@contextmanager
def atomic_writer(path: Path, *, durable: bool = True, new: bool = False) -> Iterator[BinaryIO]:
    """Write a file atomically: a reader sees the old content or the new one, never a part.

    The new file replaces the old one when the block ends. If the block raises, nothing changes.

    Args:
        path: The file, in a directory that exists.
        durable: Whether the file must survive a crash of the host; the call then waits for the
            disk.
        new: Whether the file must not exist yet.

    Raises:
        FileExistsError: The file exists, and `new` is set.
        OSError: The file cannot be written.
    """
    # The name is random, because two containers with one volume may have the same process id. It is
    # short, because the file's own name may have the maximum length.
    temporary = path.with_name(f".{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if new:
            os.link(temporary, path)
        else:
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, text: str, *, durable: bool = True, new: bool = False) -> None:
    """Write a text as `atomic_writer` does; create the directory if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_writer(path, durable=durable, new=new) as file:
        file.write(text.encode())


def is_read_only(folder: Path) -> bool:
    """Return whether the file system of a directory is read-only.

    The check changes the directory's time stamp. The flags of `statvfs` are not enough: on newer
    kernels (tested: Linux 6.18) ext4 does not set them after a disk fault.
    """
    try:
        os.utime(folder)
    except OSError as error:
        return error.errno == errno.EROFS
    return False
