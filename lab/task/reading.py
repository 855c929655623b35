"""Reading small files that a program of a user can have replaced by anything."""

from __future__ import annotations

import errno
import os
import stat
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
