"""The statuses of tasks on the run volume; only a task's agent writes its status."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.text import LONGEST_REASON, short
from lab.volume.clock import unix_time
from lab.volume.decoding import from_json
from lab.volume.files import REFUSED_S, Patience, open_regular, read_regular, write_atomically
from lab.volume.layout import Volume
from lab.volume.run_spec import Request
from lab.volume.states import Cause, State

if TYPE_CHECKING:
    from hashlib import _Hash


@dataclass(frozen=True, slots=True)
class Attempt:
    """An earlier attempt of a task's program, and how it ended.

    Attributes:
        reason: Why it ended, as a text.
        cause: Why it ended, as a fixed term.
        started_unix: When it started, in seconds since the epoch, or None.
        ended_unix: When it ended, in seconds since the epoch.
        global_step: The highest global step in its records, or None.
    """

    reason: str
    cause: Cause | None
    started_unix: float | None
    ended_unix: float
    global_step: int | None


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The status of one task of one run, as its agent last wrote it.

    Attributes:
        task: `worker-0`.
        state: The state.
        attempt: 0 for the first start of the program; each restart adds 1.
        reason: Why it is in this state, as a text; may be empty.
        cause: Why it did not succeed, as a fixed term; None while it runs or if it succeeded.
        exit_code: The program's exit code; None while it runs or if a signal ended it.
        signal: The name of the signal that ended the program (`SIGKILL`), or None.
        pid: The program's process id in its environment, or None.
        started_unix: When the program started, in seconds since the epoch, or None.
        ended_unix: When it ended, in seconds since the epoch, or None.
        global_step: The highest global step in its records, or None.
        stepped_unix: When the agent read that step, in seconds since the epoch, or None.
        signs_of_life: The number of its program's signs of life, counted until its first step.
        message: The text of its newest event, often what it waits for; may be empty.
        talked: Whether its program has ever had a connection to that of another task; None: not
            known, or not looked for.
        earlier: The attempts before this one, in order.
        records_sha256: SHA-256 of its records after its end; "" before it, and for a task
            that another agent declared lost.
        records_lost: The number of records that could not be written to the run volume.
        fix: The end of the reason if it says how to fix it; may be empty.
    """

    task: str
    state: State
    attempt: int = 0
    reason: str = ""
    cause: Cause | None = None
    exit_code: int | None = None
    signal: str | None = None
    pid: int | None = None
    started_unix: float | None = None
    ended_unix: float | None = None
    global_step: int | None = None
    stepped_unix: float | None = None
    signs_of_life: int = 0
    message: str = ""
    talked: bool | None = None
    earlier: tuple[Attempt, ...] = ()
    records_sha256: str = ""
    records_lost: int = 0
    fix: str = ""

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskStatus:
        """Decode a status.

        Raises:
            ValueError: The text is not a status.
        """
        return from_json(text, cls, "task status")


TaskStatuses = Mapping[str, TaskStatus]
"""The status of each task of a run, by the task's name."""

_IN_PLACE_BYTES = 4096  # one block of every common file system


def read_status(path: Path, task: str) -> TaskStatus:
    """Return one task's status; failed, with the cause `status unreadable`, if it is damaged.

    All statuses of a run are written before its request. So a missing status is damaged, too.

    Raises:
        OSError: The file cannot be read now, but perhaps later.
    """
    try:
        return TaskStatus.from_json(read_regular(path))
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError) as error:
        return _unreadable(task, error)


def read_statuses(volume: Volume, request: Request) -> dict[str, TaskStatus]:
    """Return the status of each task of a run, in the order of the cluster; see `read_status`."""
    tasks = request.tasks()
    return {task: read_status(volume.status(request.run_id, task), task) for task in tasks}


def _unreadable(task: str, error: OSError | ValueError) -> TaskStatus:
    why = (error.strerror or "").lower() if isinstance(error, OSError) else str(error)
    reason = short(f"its status cannot be read: {why}", LONGEST_REASON)
    return TaskStatus(task, State.FAILED, reason=reason, cause=Cause.UNREADABLE)


def write_status(path: Path, status: TaskStatus, *, durable: bool = True) -> None:
    """Replace a task's status, also if the disk is full.

    The status must be able to report a full disk. So if there is no space for a new file, the
    function overwrites the old file in place, in its existing block and in one write.

    Raises:
        OSError: Both ways failed.
    """
    text = status.to_json()
    try:
        write_atomically(path, text, durable=durable)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        data = text.encode()
        with path.open("r+b", buffering=0) as file:
            size = max(len(data), os.fstat(file.fileno()).st_size)
            if size > _IN_PLACE_BYTES:
                raise
            file.write(data.ljust(size))


def write_lost(path: Path, status: TaskStatus, reason: str) -> None:
    """Write the state `lost` for a task whose agent is lost.

    Raises:
        OSError: The status could not be written.
    """
    cause, now = Cause.NODE_LOST, unix_time()
    write_status(
        path, replace(status, state=State.LOST, reason=reason, cause=cause, ended_unix=now)
    )


class Statuses:
    """The statuses of all tasks of a run; a file is read again only after a change.

    An unchanged file costs one `stat` per call. A status that was read once stays until its file
    has been unreadable for `REFUSED_S`.
    """

    def __init__(self, volume: Volume, run_id: str, tasks: Iterable[str]) -> None:
        self._paths = {task: volume.status(run_id, task) for task in tasks}
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._patience = {task: Patience(REFUSED_S) for task in self._paths}
        self._states: dict[str, TaskStatus] = {}

    def refresh(self) -> TaskStatuses:
        """Return the status of each task, in the order of the cluster.

        Raises:
            OSError: A status that was never read cannot be read now.
        """
        for task, path in self._paths.items():
            if task not in self._states:
                self._states[task] = read_status(path, task)
                continue
            try:
                self._read_again(task, path)
                self._patience[task].succeed()
            except (OSError, ValueError) as error:
                self._seen.pop(task, None)
                if self._patience[task].fail(error):
                    self._states[task] = _unreadable(task, error)
        return self._states

    def _read_again(self, task: str, path: Path) -> None:
        stat = path.stat()
        stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if self._seen.get(task) != stamp:
            self._states[task] = TaskStatus.from_json(read_regular(path))
            self._seen[task] = stamp


_PIECE: Final = 1 << 20


def digest_of(path: Path, beat: Callable[[], None] = lambda: None) -> _Hash:
    """Return the SHA-256 of a file, to continue as it grows; of no bytes without a regular file.

    Args:
        path: The file.
        beat: Called after each piece of a mebibyte: a long file takes many seconds.

    Raises:
        OSError: The file cannot be read.
    """
    digest = hashlib.sha256()
    with contextlib.suppress(FileNotFoundError, ValueError), open_regular(path) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            beat()
    return digest
