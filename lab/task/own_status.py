"""An agent's own task's state: what it is, and when the others are told."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lab.task import states
from lab.task.protocol import TaskStatus
from lab.task.statuses import read_status, write_status

_RETRY_S: Final = 1.0
_TELL_S: Final = 1.0


class OwnStatus:
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
        self._told_at = 0.0
        self._retry_at: float | None = None
        self._refused_at: float | None = None
        self.now = read_status(path, task)

    @property
    def is_kept(self) -> bool:
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
        self._told_at = time.monotonic()
        try:
            write_status(self._path, status, durable=durable)
            self._retry_at = self._refused_at = None
        except OSError as error:
            if self._refused_at is None:
                self._refused_at = time.monotonic()
                self._on_refusal(error)
            self._retry_at = time.monotonic() + _RETRY_S

    def tell(self, status: TaskStatus) -> None:
        """Tell the others: a new state at once, all else once a second."""
        if status.state is not self.now.state:
            self.write(status)
        elif status != self.now and time.monotonic() - self._told_at >= _TELL_S:
            # What a crash of the machine takes of it, the records have.
            self.write(status, durable=False)

    def retry(self) -> None:
        """Write a state that the disk has refused, if it is time."""
        if self._retry_at is not None and time.monotonic() >= self._retry_at:
            self.write(self.now)
