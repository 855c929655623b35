"""Files that a user names for the output of a command.

A device, a pipe and standard output are written to, never replaced. A link is followed. A regular
file that lab did not write is kept, unless the user forces its replacement.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lab.errors import InputError
from lab.task.protocol.files import atomic_writer
from lab.task.text import short

_DESCRIPTORS: Final = {"/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR: Final = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,4})")
_PREFIX_BYTES: Final = 4096
"""Bytes of a file that show which program wrote it."""

IsOwnFile = Callable[[bytes], bool]
"""Whether a file that begins with these bytes was written by the same command."""


def check_output(flag: str, path: Path, is_ours: IsOwnFile, *, force: bool) -> None:
    """Check that a file may be written, before anything is computed.

    Args:
        flag: The flag that names it, for the message.
        path: The file.
        is_ours: Recognizes a file of the same command, which may be replaced, by its first bytes.
        force: Whether any other regular file may be replaced, too.

    Raises:
        InputError: It is a directory or a disk, its directory is missing, or another program
            wrote it.
    """
    if _descriptor(path) is not None:
        return
    shown = short(str(path))
    fix = "name another file"
    try:
        target = path.resolve()
        if not target.parent.is_dir():
            what = f"{flag}: there is no directory {short(str(path.parent))}"
            raise InputError(what, "make it, or name a file in another one")
        if not os.access(target if target.exists() else target.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not target.exists():
            return
        mode = target.stat().st_mode
        begin = _prefix_of(target) if stat.S_ISREG(mode) else b""
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a link to itself
        raise InputError(f"{flag}: {shown} cannot be written: {_reason(error)}", fix) from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{flag}: {shown} is a directory", "name a file in it")
    if stat.S_ISBLK(mode):
        raise InputError(f"{flag}: {shown} is a disk", fix)
    if begin and not force and not is_ours(begin):
        raise InputError(
            f"{flag}: {shown} is there, and lab did not write it",
            f"{fix}, or replace this one with --force",
        )


def write_output(path: Path, data: bytes) -> None:
    """Write a file; a regular file is written as a whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    descriptor = _descriptor(path)
    if descriptor is not None:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        return
    target = path.resolve()
    mode = target.stat().st_mode if target.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        with target.open("wb") as file:
            file.write(data)
        return
    with atomic_writer(target) as file:
        file.write(data)
        if mode is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(mode))


def _descriptor(path: Path) -> int | None:
    """The open descriptor that a path stands for: 1 for `/dev/stdout`."""
    found = _DESCRIPTOR.fullmatch(str(path))
    return int(found[1]) if found else _DESCRIPTORS.get(str(path))


def _prefix_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_PREFIX_BYTES)


def _reason(error: Exception) -> str:
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
