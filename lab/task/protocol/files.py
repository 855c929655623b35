"""Files that are read without trust in them, and files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

MAX_BYTES: Final = 64 << 20
"""The most that a file of JSON of a run may hold."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; a link is not followed, a pipe is not waited for.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is no regular file.
        OSError: It cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENXIO}:  # a link, a socket
            raise
        raise ValueError("it is no regular file") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is no regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """The text of a regular file, as `open_regular` opens it.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is no regular file, larger than the limit, or no UTF-8.
        OSError: It cannot be read.
    """
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"it has more than {max_bytes:,} bytes")
    return data.decode("utf-8")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, also where one call takes a part only.

    Raises:
        OSError: They cannot be written; a part of them may be.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def append_whole(descriptor: int, data: bytes, size: int) -> None:
    """Append all bytes to an open file, or none.

    Args:
        descriptor: The file, open for appending.
        data: What is appended.
        size: The file's size before, which is restored if a write fails.

    Raises:
        OSError: They cannot be written.
    """
    try:
        write_all(descriptor, data)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


@contextmanager
def atomic_writer(path: Path, *, durable: bool = True, new: bool = False) -> Iterator[BinaryIO]:
    """Write a file so that a reader sees the old one or the new one, never a part.

    It takes its place when the block ends; where the block raises, nothing has changed.

    Args:
        path: The file, in a directory that exists.
        durable: Whether it must outlive a crash of the machine; that waits for the disk.
        new: Whether the file must not exist yet.

    Raises:
        FileExistsError: It exists, and must be `new`.
        OSError: It cannot be written.
    """
    # Random, because two containers with one volume may have the same process id; short, because
    # the file's own name may be as long as a name can be.
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
    """Write a text as `replacing` does; the directory is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_writer(path, durable=durable, new=new) as file:
        file.write(text.encode())


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
