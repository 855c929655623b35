"""Files that the user names, and atomic writing.

lab writes to devices, pipes and stdout, and never replaces them. It follows links. It does not
replace a regular file that lab did not write, except with --force.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from lab.base.errors import InputError

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
    fix = "name another file"
    try:
        target = path.resolve()
        if not target.parent.is_dir():
            what = f"{flag}: there is no directory {path.parent}"
            raise InputError(what, "create it, or name a file in another directory")
        if not os.access(target if target.exists() else target.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not target.exists():
            return
        mode = target.stat().st_mode
        begin = _prefix_of(target) if stat.S_ISREG(mode) else b""
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a link to itself
        raise InputError(f"{flag}: {path} cannot be written: {_reason(error)}", fix) from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{flag}: {path} is a directory", "name a file in it")
    if stat.S_ISBLK(mode):
        raise InputError(f"{flag}: {path} is a block device", fix)
    if begin and not force and not is_ours(begin):
        raise InputError(
            f"{flag}: {path} exists, and lab did not write it",
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
    with atomic_writer(target) as file:
        file.write(data)
        if mode is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(mode))


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


def user_path(argument: str) -> Path:
    """Return the path that a user typed: `~` and `~name` become home directories if they exist."""
    return Path(os.path.expanduser(argument))  # noqa: PTH111  (pathlib raises for unknown users)


def _descriptor(path: Path) -> int | None:
    """Return the open descriptor of a path such as `/dev/stdout`, which is 1; or None."""
    match = _DESCRIPTOR.fullmatch(str(path))
    return int(match[1]) if match else _DESCRIPTORS.get(str(path))


def _prefix_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_PREFIX_BYTES)


def _reason(error: Exception) -> str:
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
