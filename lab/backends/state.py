"""This user's state directory, and its locks.

A command that boots or removes an environment locks it exclusively.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from lab.base.errors import LabError
from lab.base.variables import LAB_STATE

BUSY_S: Final = 5.0
"""Seconds that a command waits for a lock that another command holds."""

_POLL_S: Final = 0.1

T = TypeVar("T")


class Busy(LabError):  # noqa: N818  (a state)
    """Another command holds the lock."""


def state_directory() -> Path:
    """Return `LAB_STATE`, or `lab` in the user's state directory (XDG)."""
    if state := os.environ.get(LAB_STATE):
        return Path(state).absolute()
    from platformdirs.unix import Unix  # noqa: PLC0415  (few commands need it)

    return Unix("lab").user_state_path


@contextmanager
def locked(path: Path, name: str, *, shared: bool = False) -> Iterator[int]:
    """Hold a lock, which the kernel releases when this process ends.

    Args:
        path: The lock's file; it is created if it is missing. Only its holder may remove it.
        name: The locked object, for the message: `the local environment 'mnist'`.
        shared: Whether other commands may hold a shared lock at the same time. Commands that do not
            change the environment use a shared lock.

    Yields:
        The lock's descriptor: a child that inherits it also holds the lock.

    Raises:
        Busy: Another process holds the lock.
        OSError: The file cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _opened(path) as file:
        try:
            _lock(file, path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        except BlockingIOError as error:
            raise Busy(
                f"another command is using {name}",
                "wait until that command ends",
            ) from error
        yield file.fileno()


def lock_path(backend: str, project: str) -> Path:
    """Return the file of the lock of one environment of this user."""
    return state_directory() / backend / f"{project}.lock"


def lock_environment(
    backend: str, project: str, *, shared: bool = False
) -> AbstractContextManager[int]:
    """Hold the lock of one environment of this user; see `locked`.

    Args:
        backend: The name of its backend.
        project: The environment's name.
        shared: Whether other commands may hold a shared lock at the same time.
    """
    name = f"the {backend} environment {project!r}"
    return locked(lock_path(backend, project), name, shared=shared)


def _lock(file: IO[Any], path: Path, kind: int) -> None:
    fcntl.flock(file, kind | fcntl.LOCK_NB)
    if not (path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))):
        raise BlockingIOError  # its holder has just removed it


def _opened(path: Path) -> IO[Any]:
    try:
        return path.open("a")
    except OSError as error:
        # An existing file can be locked even on a read-only file system.
        if error.errno != errno.EROFS:
            raise
        return path.open("rb")


def with_lock_retry(action: Callable[[], T]) -> T:
    """Call a function that needs a lock; repeat it while another command holds the lock.

    Raises:
        Busy: Another command still holds the lock after `BUSY_S`.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            return action()
        except Busy:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


@contextmanager
def state_errors() -> Iterator[None]:
    """Convert an OSError of the block into an error that names the state directory.

    Raises:
        LabError: The state directory cannot be used.
    """
    try:
        yield
    except OSError as error:
        raise LabError(
            f"the state directory {state_directory()} cannot be used: {error.strerror}",
            "free space there, or set LAB_STATE to another directory",
        ) from error
