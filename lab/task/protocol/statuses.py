"""Task statuses on the run volume: each agent writes its own task's, and everybody reads all."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from lab.task.protocol import TaskStatus, Volume, states
from lab.task.protocol.files import read_regular, write_atomically
from lab.task.protocol.states import Cause, State

_RETRY_S: Final = 1.0
_NOTIFY_S: Final = 1.0
_IN_PLACE_BYTES = 4096  # one block of every common file system


def read_status(path: Path, task: str) -> TaskStatus:
    """One task's state; pending where nothing (readable) has been written yet."""
    try:
        return TaskStatus.from_json(read_regular(path))
    except (FileNotFoundError, ValueError):
        return TaskStatus(task, State.PENDING)


def write_status(path: Path, status: TaskStatus, *, durable: bool = True) -> None:
    """Replace a task's state, also where the disk is full.

    A full disk must not keep the news of it from being written. So where there is no room for a
    new file, the old one is overwritten in the block that it holds already, in one write.

    Raises:
        OSError: It could not be written either way.
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
    """End a task whose agent cannot write its status any more.

    Raises:
        OSError: It could not be written.
    """
    cause, now = Cause.NODE_LOST, time.time()
    write_status(
        path, replace(status, state=State.LOST, reason=reason, cause=cause, ended_unix=now)
    )


class Statuses:
    """The states of all tasks of a run, read again only where a file has changed.

    To ask ten times a second costs one `stat` a task.
    """

    def __init__(self, volume: Volume, run_id: str, tasks: Iterable[str]) -> None:
        self._paths = {task: volume.status(run_id, task) for task in tasks}
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._states = {task: TaskStatus(task, State.PENDING) for task in self._paths}

    def refresh(self) -> Mapping[str, TaskStatus]:
        """Task to state, in the order of the cluster."""
        for task, path in self._paths.items():
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if self._seen.get(task) != stamp:
                self._seen[task] = stamp
                self._states[task] = read_status(path, task)
        return self._states


class StatusWriter:
    """The state of one's own task; each change of it is checked against the table of states.

    Attributes:
        now: The state, also while the disk refuses it.
    """

    def __init__(self, path: Path, task: str, refused: Callable[[OSError], None]) -> None:
        """Read where the task stood.

        Args:
            path: Its file.
            task: Its name.
            refused: Told of it when the disk begins to refuse a state.
        """
        self._path = path
        self._on_refusal = refused
        self._reported_at = 0.0
        self._retry_at: float | None = None
        self._refused_at: float | None = None
        self.now = read_status(path, task)

    @property
    def is_written(self) -> bool:
        """Whether the state is on the disk."""
        return self._retry_at is None

    @property
    def refused_s(self) -> float:
        """Seconds since the disk began to refuse the state; 0 if the state is on the disk."""
        return 0.0 if self._refused_at is None else time.monotonic() - self._refused_at

    def write(self, status: TaskStatus, *, durable: bool = True) -> None:
        """Write a state; where the disk refuses, `retry` does so once more after a while."""
        states.check(self.now.state, status.state)
        self.now = status
        self._reported_at = time.monotonic()
        try:
            write_status(self._path, status, durable=durable)
            self._retry_at = self._refused_at = None
        except OSError as error:
            if self._refused_at is None:
                self._refused_at = time.monotonic()
                self._on_refusal(error)
            self._retry_at = time.monotonic() + _RETRY_S

    def publish(self, status: TaskStatus) -> None:
        """Tell the others: a new state at once, all else once a second."""
        if status.state is not self.now.state:
            self.write(status)
        elif status != self.now and time.monotonic() - self._reported_at >= _NOTIFY_S:
            # What a crash of the machine takes of it, the records have.
            self.write(status, durable=False)

    def retry(self) -> None:
        """Write a state that the disk has refused, if it is time."""
        if self._retry_at is not None and time.monotonic() >= self._retry_at:
            self.write(self.now)
