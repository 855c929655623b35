"""What receives the data of a run under way, and the progress that it shows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from lab.base.formatting import counted, percent, rate
from lab.base.log import LOG
from lab.base.text import short
from lab.protocol.records.reader import STEPS, is_time, is_whole
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.states import State
from lab.runner.store.run_info import RunInfo, gpus_of
from lab.runner.store.task_progress import TaskProgress

SILENT_S: Final = 3.0
"""Seconds without a record after which a training task is shown as silent."""

RATE_S: Final = 5.0
"""The steps per second that a view shows are a mean over this time, in seconds."""

GPU_FRESH_S: Final = 3.0
"""Seconds after which a GPU's sample is too old to be shown."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a view; a replayed run has one of its own.

    Attributes:
        monotonic: Returns seconds since a fixed moment.
        unix: Returns seconds since the epoch.
    """

    # The functions are looked up at each call, so that a test can replace them.
    monotonic: Callable[[], float] = lambda: time.monotonic()  # noqa: PLW0108
    unix: Callable[[], float] = lambda: time.time()  # noqa: PLW0108


NOW: Final = Clock()
"""The clock of this host."""


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


class MakeView(Protocol):
    """Makes the view of a run, which is entered while the run is shown."""

    def __call__(
        self, info: RunInfo, clock: Clock = NOW, title: str = ""
    ) -> AbstractContextManager[View]:
        """Make the view.

        Args:
            info: The content of the run's `run.json`.
            clock: The clock of the run.
            title: What is shown; "": the run and its backend.
        """


class StepRate:
    """The local steps per second of one task over its newest records."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def add(self, record: Mapping[str, Any]) -> None:
        """Add one record; only step records count."""
        time, step = record.get("time_unix"), record.get("local_step")
        if record.get("kind") not in STEPS or not (is_time(time) and is_whole(step)):
            return
        if self._marks and (time < self._marks[-1][0] or step < self._marks[-1][1]):
            self._marks.clear()  # a new attempt, or a changed clock
        self._marks.append((time, step))
        while len(self._marks) > 2 and time - self._marks[1][0] >= RATE_S:  # noqa: PLR2004
            self._marks.popleft()

    @property
    def per_s(self) -> float | None:
        """The mean over `RATE_S`, or over the last two records; None with fewer records."""
        if not self._marks:
            return None
        (first, earlier), (last, latest) = self._marks[0], self._marks[-1]
        return (latest - earlier) / (last - first) if latest > earlier and last > first else None


class TaskView(View):
    """The model of a run: the newest progress and status of each task, in the cluster's order.

    Views that draw it are derived from it.
    """

    def __init__(self, info: RunInfo, clock: Clock = NOW) -> None:
        self._clock = clock
        self._epochs = info.hyperparameters.get("epochs")
        self._progress = {task: TaskProgress(task) for task in info.task_names()}
        self._statuses = {task: TaskStatus(task, State.PENDING) for task in self._progress}
        self._width = max(map(len, self._progress), default=0)
        self._updated: dict[str, float] = {}
        self._rates: dict[str, StepRate] = {}
        self._waits: dict[str, float] = {}
        self._holds_gpus = bool(gpus_of(info))
        self._gpus: tuple[float, Mapping[str, float]] = (0.0, {})

    @property
    def progress(self) -> Mapping[str, TaskProgress]:
        """The progress of each task."""
        return self._progress

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """Receive new records of a task."""
        progress = self._progress.setdefault(task, TaskProgress(task))
        for record in records:
            progress.add(dict(record))
            self._rates.setdefault(task, StepRate()).add(record)
            step_s, wait_s = record.get("step_time_s"), record.get("wait_time_s")
            if is_time(step_s) and is_time(wait_s) and 0 <= wait_s <= step_s > 0:
                self._waits[task] = wait_s / step_s
        self._updated[task] = self._clock.monotonic()

    def status(self, status: TaskStatus) -> None:
        """Receive a task's new status."""
        self._statuses[status.task] = status

    def forget(self, task: str) -> None:
        """Forget a task's records: all of them are passed again, from the first."""
        self._progress[task] = TaskProgress(task)
        self._rates.pop(task, None)

    def gpus(self, use: Mapping[str, float]) -> None:
        """Receive the utilisation of each task's GPUs."""
        # A single assignment, since another thread reads the value.
        self._gpus = (self._clock.monotonic(), use)

    def _gpu(self, task: str) -> str:
        """Return the utilisation of a task's GPUs; "" if the newest sample is old."""
        sampled, use = self._gpus
        return percent(use.get(task)) if self._clock.monotonic() - sampled <= GPU_FRESH_S else ""

    def _epoch(self, task: str) -> str:
        """Return the task's epoch, counted from 1: `3/50`."""
        epoch = self._progress[task].epoch
        if epoch is None:
            return ""
        return f"{epoch + 1}/{self._epochs}" if isinstance(self._epochs, int) else f"{epoch + 1}"

    def _rate(self, task: str) -> str:
        """Return the task's local steps per second in the last seconds; "" if not known."""
        return rate(self._rates[task].per_s) if task in self._rates else ""

    def _last(self, task: str) -> str:
        """Return the task's newest message, its silence, or the staleness of its gradients.

        Without staleness: how much of its steps the task waits for others.
        """
        status = self._statuses[task]
        if status.state.ended:
            return ""
        if status.state is not State.TRAINING:
            # The agent's message, such as what the task waits for, precedes that of the program.
            return short(status.message or self._progress[task].message)
        if task not in self._updated:
            return ""
        silent = self._clock.monotonic() - self._updated[task]
        if silent >= SILENT_S:
            return f"silent {silent:.0f} s"
        staleness = self._progress[task].staleness
        if staleness is not None:
            return counted(staleness, "update")
        return f"{percent(self._waits[task])} of a step" if task in self._waits else ""

    def _report_notices(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """Report the injected faults and the new attempts, which the agent records."""
        for record in records:
            message = str(record.get("message"))
            if record.get("kind") == "event" and message.startswith(("fault", "attempt ")):
                self.report_once(f"{task}: {short(message, 120)}")

    @property
    def _last_title(self) -> str:
        """What `_last` says of tasks that train: their staleness, or how long they wait."""
        is_synchronous = all(progress.staleness is None for progress in self._progress.values())
        return "waits" if self._waits and is_synchronous else "staleness"
