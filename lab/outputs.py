"""Write the output of a command to a file that the user names.

lab writes to devices, pipes and stdout, and never replaces them. It follows links. It does not
replace a regular file that lab did not write, except with --force.
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
from lab.text import short

_DESCRIPTORS: Final = {"/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR: Final = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,4})")
_PREFIX_BYTES: Final = 4096
"""The number of bytes at the beginning of a file that show which program wrote it."""

IsOwnFile = Callable[[bytes], bool]
"""Returns whether the same command wrote a file that begins with these bytes."""


def check_output(flag: str, path: Path, is_ours: IsOwnFile, *, force: bool) -> None:
    """Check that a file may be written, before the command does its work.

    Args:
        flag: The flag that names the file, for the message.
        path: The file.
        is_ours: Recognizes a file of the same command by its first bytes. It may be replaced.
        force: Whether any other regular file may be replaced, too.

    Raises:
        InputError: It is a directory or a block device, its directory is missing, or another
            program wrote it.
    """
    if _descriptor(path) is not None:
        return
    shown = short(str(path))
    fix = "name another file"
    try:
        target = path.resolve()
        if not target.parent.is_dir():
            what = f"{flag}: there is no directory {short(str(path.parent))}"
            raise InputError(what, "create it, or name a file in another directory")
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
        raise InputError(f"{flag}: {shown} is a block device", fix)
    if begin and not force and not is_ours(begin):
        raise InputError(
            f"{flag}: {shown} exists, and lab did not write it",
            f"{fix}, or replace it with --force",
        )


def write_output(path: Path, data: bytes) -> None:
    """Write a file; a regular file is written atomically.

    Raises:
        OSError: The file cannot be written.
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
    from lab.volume.files import atomic_writer  # noqa: PLC0415  (not for stdout)

    with atomic_writer(target) as file:
        file.write(data)
        if mode is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(mode))


def _descriptor(path: Path) -> int | None:
    """Return the open descriptor of a path such as `/dev/stdout`, which is 1; or None."""
    match = _DESCRIPTOR.fullmatch(str(path))
    return int(match[1]) if match else _DESCRIPTORS.get(str(path))


def _prefix_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_PREFIX_BYTES)


def _reason(error: Exception) -> str:
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
