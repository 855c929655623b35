"""How much of a run is done, and the time left."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.records.reader import is_time, is_whole
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.run_spec import registered
from lab.protocol.volume.states import State
from lab.runner.store.run_info import RunInfo

SHIPPED_IMAGES: Final = 55_000
"""The number of training images in the shipped data."""

STABLE_S: Final = 3.0
"""Seconds of training after which the time left is known well enough."""

WINDOW: Final = 60
"""The number of marks, each at least a second after the one before, that give the rate."""


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
        self._global_steps = _positive(info.hyperparameters.get("global_steps"))
        self._epochs = _positive(info.hyperparameters.get("epochs"))
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
