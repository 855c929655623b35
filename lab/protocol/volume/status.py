"""The statuses of tasks on the run volume; only a task's agent writes its status."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.base.text import LONGEST_REASON, short
from lab.protocol.volume.clock import unix_time
from lab.protocol.volume.files import (
    REFUSED_S,
    Patience,
    open_regular,
    read_regular,
    write_atomically,
)
from lab.protocol.volume.layout import Volume
from lab.protocol.volume.run_spec import Request
from lab.protocol.volume.states import Cause, State, TaskStatus

if TYPE_CHECKING:
    from hashlib import _Hash


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
