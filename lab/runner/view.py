"""What receives the data of a run under way, and the progress and the time left that it shows."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from lab.base.formatting import counted, percent, rate
from lab.base.log import LOG
from lab.base.text import short
from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.records.reader import STEPS, is_time, is_whole
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.run_spec import registered
from lab.protocol.volume.states import State
from lab.runner.store.run_info import RunInfo, gpus_of
from lab.runner.store.task_progress import TaskProgress

SILENT_S: Final = 3.0
"""Seconds without a record after which a training task is shown as silent."""

RATE_S: Final = 5.0
"""The steps per second that a view shows are a mean over this time, in seconds."""

GPU_FRESH_S: Final = 3.0
"""Seconds after which a GPU's sample is too old to be shown."""

SHIPPED_IMAGES: Final = 55_000
"""The number of training images in the shipped data."""

STABLE_S: Final = 3.0
"""Seconds of training after which the time left is known well enough."""

WINDOW: Final = 60
"""The number of marks, each at least a second after the one before, that give the rate."""


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


class View:
    """The model of a run: the newest progress and status of each task, in the cluster's order.

    It receives what a client collects, a replay plays, or a board reads. This base class shows
    nothing; those that draw the model are derived from it.
    """

    def __init__(self, info: RunInfo, clock: Clock = NOW, title: str = "") -> None:
        """Start with tasks that wait.

        Args:
            info: The content of the run's `run.json`.
            clock: The clock of the run.
            title: What is shown; "": the run and its backend.
        """
        self._clock = clock
        self._title = title or f"run {info.run_id} on {info.backend}"
        self._epochs = info.hyperparameters.get("epochs")
        self._progress = {task: TaskProgress(task) for task in info.task_names()}
        self._statuses = {task: TaskStatus(task, State.PENDING) for task in self._progress}
        self._width = max(map(len, self._progress), default=0)
        self._updated: dict[str, float] = {}
        self._rates: dict[str, StepRate] = {}
        self._waits: dict[str, float] = {}
        self._holds_gpus = bool(gpus_of(info))
        self._gpus: tuple[float, Mapping[str, float]] = (0.0, {})
        self._reported: set[str] = set()

    def __enter__(self) -> Self:
        """Start the view."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the view."""

    @property
    def progress(self) -> Mapping[str, TaskProgress]:
        """The progress of each task."""
        return self._progress

    @property
    def statuses(self) -> Mapping[str, TaskStatus]:
        """The newest status of each task; at first it is pending."""
        return self._statuses

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

    def printed(self, task: str, lines: Sequence[str]) -> None:
        """Receive lines that a task's program printed, safe to show."""

    def tick(self) -> None:
        """Update whatever depends on time; called at least once a second."""

    def report_once(self, line: str) -> None:
        """Report a line once, also if the stream is opened again."""
        if line not in self._reported:
            self._reported.add(line)
            LOG.info(line)

    def gpus(self, use: Mapping[str, float]) -> None:
        """Receive the utilisation of each task's GPUs, from 0 to 1.

        The sampling thread calls this once a second.
        """
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


class RunProgress:
    """How much of a run is done, and the time left.

    The end is known from `global_steps`, or from `epochs` and the size of an epoch. A program that
    resumes from a checkpoint goes back: older records then count no more.
    """

    def __init__(self, info: RunInfo) -> None:
        self._info = info
        experiment = registered(info.spec)
        self._adds_up = experiment is not None and experiment.steps_add_up
        self._gang = experiment is not None and experiment.gang
        # What an epoch is, and which steps count, is known of lab's own experiments only.
        given = info.hyperparameters if experiment is not None else {}
        self._global_steps = _positive(given.get("global_steps"))
        self._epochs = _positive(given.get("epochs"))
        self._epoch_steps: int | None = None
        self._made: dict[str, int] = {}
        self._step = 0
        self._since = -math.inf
        self._attempt = 0
        self._marks: deque[tuple[float, int]] = deque(maxlen=WINDOW)

    @property
    def has_end(self) -> bool:
        """Whether the run's hyperparameters determine its end."""
        return bool(self._global_steps or self._epochs)

    def add(self, task: str, record: Mapping[str, Any]) -> None:
        """Add one record of a task."""
        time, step = record.get("time_unix"), record.get("global_step")
        attempt = record.get("attempt", 0)
        if not is_time(time) or not is_whole(attempt) or time < self._since:
            return
        if attempt < self._attempt and self._gang:
            return
        if attempt > self._attempt:
            self._attempt = attempt
            if self._gang:
                self._go_back(time, 0)
        if not is_whole(step):
            return
        if record.get("kind") == "event":
            if attempt or not self._marks:  # it resumes from the checkpoint of this step
                self._go_back(time, step)
            return
        self._learn(record)
        if is_whole(record.get("local_step")):
            self._made[task] = record["local_step"]
        self._step = max(self._step, step)
        if not self._marks or time >= self._marks[-1][0] + 1:
            self._marks.append((time, self._step))

    def _go_back(self, time: float, step: int) -> None:
        self._since, self._step = time, step
        self._marks.clear()

    def _learn(self, record: Mapping[str, Any]) -> None:
        """Learn the number of steps of an epoch, in the steps that the epochs count."""
        local, examples = record.get("local_step"), record.get("examples")
        if self._epoch_steps is not None or not is_whole(local) or local < 1:
            return
        if not self._info.spec.data_dir:
            if is_whole(examples) and examples >= local:
                self._epoch_steps = max(SHIPPED_IMAGES // (examples // local), 1)
        elif record.get("kind") == "epoch" and is_whole(record.get("epoch")):
            counted = local if self._adds_up else record["global_step"]
            self._epoch_steps = max(counted // (record["epoch"] + 1), 1)

    def end_step(self, statuses: Mapping[str, TaskStatus]) -> int | None:
        """Return the global step at which the run ends; None if it is not known (yet).

        Args:
            statuses: The tasks' statuses: a failed worker makes no more steps.
        """
        if self._global_steps:
            return self._global_steps
        if not self._epochs or self._epoch_steps is None:
            return None
        own = self._epochs * self._epoch_steps
        if not self._adds_up:
            return own
        workers = [task for task in self._info.task_names() if task.startswith("worker-")]
        missing = 0
        if self._info.spec.on_failure is OnFailure.CONTINUE:
            gone = [
                task
                for task in workers
                if task in statuses and statuses[task].state in {State.FAILED, State.LOST}
            ]
            missing = sum(max(own - self._made.get(task, 0), 0) for task in gone)
        return own * len(workers) - missing

    def share(self, statuses: Mapping[str, TaskStatus]) -> float | None:
        """Return the share of the steps that is made, from 0 to 1; None if it is not known."""
        if not self.has_end:
            return None
        if self._step == 0:
            return 0.0
        end = self.end_step(statuses)
        return None if end is None else min(self._step / max(end, 1), 1.0)

    def left_s(self, statuses: Mapping[str, TaskStatus]) -> float | None:
        """Return the time left in seconds, from the recent rate; None if it is not known yet."""
        end = self.end_step(statuses)
        if end is None or len(self._marks) < 2:  # noqa: PLR2004
            return None
        (first_s, first), (last_s, last) = self._marks[0], self._marks[-1]
        if last_s - first_s < STABLE_S or last <= first:
            return None
        return max(end - self._step, 0) * (last_s - first_s) / (last - first)


def _positive(value: object) -> int:
    """Return a whole number from 1, or 0: a program refuses other values."""
    return value if is_whole(value) and isinstance(value, int) and value > 0 else 0
