"""The queue of an environment: its runs execute one after the other, in the order of the requests.

Every `lab run` of a user takes a ticket: a file beside the environment with the next number. The
process locks its ticket until it ends, so a ticket is valid exactly as long as its process runs. A
run has its turn when no earlier ticket is valid.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from lab.backends.base import Backend
from lab.backends.state import Busy, locked, state_directory, state_errors, with_lock_retry
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.runner.lifecycle import under_way

_POLL_S: Final = 0.5
_ASK_S: Final = 2.0  # the engine is busy with the other run
_AFTER: Final = "after "  # before the id of the run that a ticket waits for
_TEXT: Final = 128  # more than a run id needs
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Ticket:
    """A ticket in the queue of an environment.

    Attributes:
        project: The environment's name.
        waited: Whether this run had to wait: the environment may have changed since.
    """

    project: str
    _backend: Backend
    _path: Path
    _descriptor: int
    waited: bool = False

    def begin(self, run_id: str) -> None:
        """Write the id of the run that has its turn, for the waiting commands."""
        # A single write of fixed length: a reader sees either the old or the new text. If the disk
        # refuses it, other commands do not see the id; the lock alone gives the turn.
        with suppress(OSError):
            os.pwrite(self._descriptor, run_id.encode().ljust(_TEXT), 0)

    def wait(self) -> None:
        """Wait until no other run is ahead, or under way in the environment.

        Raises:
            LabError: The environment does not answer.
        """
        self.begin("")
        name, shown = "another command", ""
        while True:
            ahead = self.ahead()
            known = (text.removeprefix(_AFTER) for text in ahead)
            other = next(filter(None, known), "") if ahead else self._under_way() or ""
            if not ahead and not other and self._is_free():
                return
            if not ahead and other:
                self.begin(_AFTER + other)
            self.waited = True
            name = f"run {other}" if other else name
            position = 1 + sum(not text or text.startswith(_AFTER) for text in ahead)
            line = f"waiting for {name} in environment {self.project!r}: position {position}"
            if line != shown:
                LOG.warning(f"{line} in the queue")
                shown = line
            time.sleep(_POLL_S if ahead else _ASK_S)

    def ahead(self) -> list[str]:
        """Return the text of each valid ticket before this one.

        It is the id of its run. If it waits, too: "", or `_AFTER` and the run that it waits for.
        """
        texts = (_holder(path) for path in _tickets(self._path) if path.name < self._path.name)
        return [text for text in texts if text is not None]

    def _is_free(self) -> bool:
        """Whether no command boots or removes the environment now."""
        try:
            with locked(self._path.with_name(f"{self.project}.lock"), "", shared=True):
                return True
        except Busy:
            return False

    def _under_way(self) -> str | None:
        """Return a run that is not in this queue: its client ended, or is another user's."""
        environment = self._backend.find(self.project)
        if environment is None:
            return None
        try:
            return under_way(environment, environment.runs())
        except LabError:
            if self._backend.find(self.project) is None:
                return None
            raise


@contextmanager
def turn(backend: Backend, project: str) -> Iterator[Ticket]:
    """Wait for the runs that are ahead, then hold the environment's queue.

    While it is held, no other command of this user starts a run in the environment.

    Args:
        backend: The backend of the environment, which may not be booted yet.
        project: The environment's name.

    Raises:
        LabError: The environment does not answer, or the queue cannot be written.
    """
    queue = _queue(backend.name, project)
    with state_errors():
        ticket, descriptor = with_lock_retry(partial(_join, queue))
    try:
        mine = Ticket(project, backend, ticket, descriptor)
        mine.wait()
        yield mine
    finally:
        os.close(descriptor)
        clean(backend.name, project)


def clean(backend: str, project: str) -> None:
    """Remove the files of a queue that no process needs; ignore errors of the file system.

    Args:
        backend: The name of the environment's backend.
        project: The environment's name.
    """
    with suppress(Busy, OSError):  # without a process, a ticket is not valid
        with_lock_retry(partial(_clean, _queue(backend, project)))


def _clean(queue: Path) -> None:
    with _locked(queue):
        _remove_invalid(queue)
        if not _tickets(queue):
            queue.unlink()


def _join(queue: Path) -> tuple[Path, int]:
    """Take a ticket with the next number."""
    with _locked(queue):
        last = max((int(path.suffix[1:]) for path in _tickets(queue)), default=0)
        _remove_invalid(queue)
        ticket = queue.with_name(f"{queue.name}.{last + 1:08}")
        descriptor = os.open(ticket, _FLAGS | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return ticket, descriptor


def _queue(backend: str, project: str) -> Path:
    return state_directory() / backend / f"{project}.queue"


def _locked(queue: Path) -> AbstractContextManager[int]:
    """Lock a queue. Every process holds this lock only briefly."""
    return locked(queue, f"the queue of environment {queue.stem!r}")


def _remove_invalid(queue: Path) -> None:
    """Remove the tickets of processes that have ended."""
    for path in _tickets(queue):
        if _holder(path) is None:
            path.unlink(missing_ok=True)


def _tickets(beside: Path) -> list[Path]:
    """Return all tickets of a queue in order, valid or not."""
    queue = beside.name.partition(".")[0] + ".queue."
    return sorted(beside.parent.glob(f"{queue}{'[0-9]' * 8}"))


def _holder(ticket: Path) -> str | None:
    """Return the text of a ticket; None if its process has ended."""
    try:
        descriptor = os.open(ticket, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, _TEXT).decode(errors="replace").rstrip()
    finally:
        os.close(descriptor)
    return None
