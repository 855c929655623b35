"""This user's state directory, and locks in it.

A command that boots an environment or removes it is alone with it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from lab.errors import LabError

BUSY_S: Final = 5.0
"""So long who takes an environment down waits for another command that has it, in seconds."""

_POLL_S: Final = 0.1


class Busy(LabError):  # noqa: N818  (a state)
    """Another command has what was wanted."""


def state_directory() -> Path:
    """`LAB_STATE`, or `lab` in the user's directory for states."""
    if state := os.environ.get("LAB_STATE"):
        return Path(state).absolute()
    from platformdirs.unix import Unix  # noqa: PLC0415  (not every command asks)

    # `Unix` on every system: macOS has the same directory as Linux.
    return Unix("lab").user_state_path


@contextmanager
def locked(path: Path, what: str, *, shared: bool = False) -> Iterator[int]:
    """Hold a lock that ends with this process, however that ends.

    Args:
        path: The lock's file; it is made where it is missing, and stays.
        what: What is locked, for the message: `the local environment 'mnist'`.
        shared: Whether others may hold it so at the same time: those who need the environment as
            it is.

    Yields:
        The lock's descriptor: a child that inherits it goes on holding the lock.

    Raises:
        Busy: Another process boots it or takes it down now.
        OSError: The file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _opened(path) as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy(
                f"another command boots {what}, uses it or takes it down now",
                "wait until it is done",
            ) from error
        yield file.fileno()


@contextmanager
def lock_environment(backend: str, project: str, *, shared: bool = False) -> Iterator[int]:
    """Hold the lock of one environment of this user; see `locked`.

    Args:
        backend: `local` or `compose`.
        project: The environment's name.
        shared: Whether others may hold it so at the same time.
    """
    path = state_directory() / backend / f"{project}.lock"
    with locked(path, f"the {backend} environment {project!r}", shared=shared) as lock:
        yield lock


def _opened(path: Path) -> IO[Any]:
    try:
        return path.open("a")
    except OSError as error:
        # A file that is there can be locked also where a disk fault has made it read-only.
        if error.errno != errno.EROFS:
            raise
        return path.open("rb")


def with_lock_retry(action: Callable[[], None]) -> None:
    """Do something that needs such a lock, again for a while where another command has it.

    Raises:
        Busy: Another command still has it.
    """
    give_up = time.monotonic() + BUSY_S
    while True:
        try:
            return action()
        except Busy:
            if time.monotonic() > give_up:
                raise
        time.sleep(_POLL_S)
