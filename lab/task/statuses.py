"""The state of every task of a run, as the agents wrote it on the volume."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.task.files import read_regular, write_atomically
from lab.task.protocol import TaskStatus, Volume
from lab.task.states import State

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
