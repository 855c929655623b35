"""One command at a time on an environment: who boots it or takes it down is alone with it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.errors import LabError


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
        LabError: Another process boots it or takes it down now.
        OSError: The file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("a") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LabError(
                f"another command boots {what}, uses it or takes it down now",
                "wait until it is done",
            ) from error
        yield file.fileno()
