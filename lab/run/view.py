"""What receives the data of a run under way."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final, Self

from lab.formatting import counted, percent
from lab.log import LOG
from lab.store.progress import TaskProgress
from lab.store.run_info import RunInfo, gpus_of
from lab.text import short
from lab.volume import TaskStatus
from lab.volume.states import State

SILENT_S: Final = 3.0
"""Seconds without a record after which a training task is shown as silent."""

GPU_FRESH_S: Final = 3.0
"""Seconds after which a GPU's sample is too old to be shown."""


class View:
    """Receives the collected data of a run; this base class shows nothing."""

    _reported: frozenset[str] = frozenset()

    def __enter__(self) -> Self:
        """Start the view."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the view."""

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """Receive new records of a task."""

    def printed(self, task: str, lines: Sequence[str]) -> None:
        """Receive lines that a task's program printed, safe to show."""

    def status(self, status: TaskStatus) -> None:
        """Receive a task's new status."""

    def forget(self, task: str) -> None:
        """Forget a task's records: all of them are passed again, from the first."""

    def gpus(self, use: Mapping[str, float]) -> None:
        """Receive the utilisation of each task's GPUs, from 0 to 1.

        The sampling thread calls this once a second.
        """

    def tick(self) -> None:
        """Update whatever depends on time; called at least once a second."""

    def report_once(self, line: str) -> None:
        """Report a line once, also if the stream is opened again."""
        if line not in self._reported:
            self._reported |= {line}
            LOG.info(line)


class TaskView(View):
    """A view that keeps the newest progress and status of every task, in the cluster's order."""

    def __init__(self, info: RunInfo) -> None:
        self._epochs = info.hyperparameters.get("epochs")
        self._progress = {task: TaskProgress(task) for task in info.task_names()}
        self._statuses = {task: TaskStatus(task, State.PENDING) for task in self._progress}
        self._width = max(map(len, self._progress), default=0)
        self._updated: dict[str, float] = {}
        self._holds_gpus = bool(gpus_of(info))
        self._gpus: tuple[float, Mapping[str, float]] = (0.0, {})

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """Receive new records of a task."""
        progress = self._progress.setdefault(task, TaskProgress(task))
        for record in records:
            progress.add(dict(record))
        self._updated[task] = time.monotonic()

    def status(self, status: TaskStatus) -> None:
        """Receive a task's new status."""
        self._statuses[status.task] = status

    def forget(self, task: str) -> None:
        """Forget a task's records: all of them are passed again, from the first."""
        self._progress[task] = TaskProgress(task)

    def gpus(self, use: Mapping[str, float]) -> None:
        """Receive the utilisation of each task's GPUs."""
        # A single assignment, since another thread reads the value.
        self._gpus = (time.monotonic(), use)

    def _gpu(self, task: str) -> str:
        """Return the utilisation of a task's GPUs; "" if the newest sample is old."""
        sampled, use = self._gpus
        return percent(use.get(task)) if time.monotonic() - sampled <= GPU_FRESH_S else ""

    def _epoch(self, task: str) -> str:
        """Return the task's epoch, counted from 1: `3/50`."""
        epoch = self._progress[task].epoch
        if epoch is None:
            return ""
        return f"{epoch + 1}/{self._epochs}" if isinstance(self._epochs, int) else f"{epoch + 1}"

    def _last(self, task: str) -> str:
        """Return the task's newest message, the staleness of its gradients, or its silence."""
        state = self._statuses[task].state
        if state.ended or task not in self._updated:
            return ""
        if state is not State.TRAINING:
            return short(self._progress[task].message)
        silent = time.monotonic() - self._updated[task]
        if silent >= SILENT_S:
            return f"silent {silent:.0f} s"
        staleness = self._progress[task].staleness
        return "" if staleness is None else counted(staleness, "update")
