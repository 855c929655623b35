"""Two calls of the Linux kernel that Python 3.11 has no name for."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

# Of <sched.h> and <sys/mount.h>.
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWNET = 0x40000000
_MS_BIND = 0x1000


def unshare(flags: int) -> None:
    """Move this process into new namespaces.

    Raises:
        OSError: The kernel refused.
    """
    _check(_libc().unshare(flags), "unshare")


def bind(source: Path, target: Path) -> None:
    """Let a file appear in the place of another, in this mount namespace.

    Raises:
        OSError: The kernel refused.
    """
    result = _libc().mount(os.fsencode(source), os.fsencode(target), None, _MS_BIND, None)
    _check(result, f"mount {source} on {target}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
