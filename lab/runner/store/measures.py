"""The measures of a run and of a task: one table for `show`, `compare`, sweeps and lessons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from lab.runner.store.summary import Summary, TaskSummary, first_divergence

T = TypeVar("T")
Figure = bool | float | str
"""A value: whether, how many, or a text."""

STUCK_S: Final = 60.0
"""Seconds without a step after which a task that trains counts as stuck."""


@dataclass(frozen=True, slots=True)
class Measure(Generic[T]):
    """One measure.

    Attributes:
        name: Its name in a lesson's checks, unique among the measures of runs and tasks.
        label: Its name in tables.
        unit: Its unit, as `lab.base.formatting` has them; "": it is no quantity.
        of: Returns its value; None if it is not known.
    """

    name: str
    label: str
    unit: str
    of: Callable[[T], Figure | None]


def quantities(measures: Sequence[Measure[T]], of: T) -> Iterator[tuple[str, float | None, str]]:
    """Yield label, value and unit of each quantity of a run or a task."""
    for measure in measures:
        value = measure.of(of)
        if measure.unit and not isinstance(value, str):
            yield measure.label, value, measure.unit


def run_quantities(run: Summary) -> Iterator[tuple[str, float | None, str]]:
    """Yield label, value and unit of each quantity of a run, with one speed.

    Updates of different experiments use different numbers of images, so images are preferred.
    """
    other = "steps_per_s" if run.images_per_s is not None else "images_per_s"
    return quantities([measure for measure in OF_RUN if measure.name != other], run)


def _final_loss(run: Summary) -> float | None:
    losses = [task.loss for task in run.tasks if task.loss is not None]
    return sum(losses) / len(losses) if losses else None


def _restarts(run: Summary) -> int:
    return sum(max(task.attempts - 1, 0) for task in run.tasks)


OF_RUN: Final[Sequence[Measure[Summary]]] = (
    Measure("state", "state", "", lambda run: run.state),
    Measure("reason", "reason", "", lambda run: run.reason),
    Measure("degraded", "degraded", "", lambda run: run.degraded),
    Measure("updates_conserved", "counted", "", lambda run: run.updates_conserved),
    Measure("accuracy", "accuracy", "share", lambda run: run.accuracy),
    Measure("final_loss", "final loss (mean)", "loss", _final_loss),
    Measure("diverged_at", "diverged at step", "count", lambda run: first_divergence(run.tasks)),
    Measure("global_step", "global step", "count", lambda run: run.global_step),
    Measure("steps_per_s", "global steps/s", "1/s", lambda run: run.steps_per_s),
    Measure("images_per_s", "images/s", "1/s", lambda run: run.images_per_s),
    Measure("wall_s", "wall time", "s", lambda run: run.wall_s),
    Measure("first_step_s", "first step (all workers)", "s", lambda run: run.first_step_s),
    Measure("mean_staleness", "staleness (mean)", "updates", lambda run: run.mean_staleness),
    Measure("updates_lost", "updates lost", "count", lambda run: run.updates_lost),
    Measure("steps_redone", "steps repeated", "count", lambda run: run.steps_redone),
    Measure("restarts", "tasks restarted", "count", _restarts),
    Measure("records_lost", "records lost", "count", lambda run: run.records_lost),
)
"""The measures of a whole run, in the order of the tables."""

OF_TASK: Final[Sequence[Measure[TaskSummary]]] = (
    Measure("task_state", "state", "", lambda task: task.state),
    Measure("exit_code", "exit code", "", lambda task: task.exit_code),
    Measure("cause", "cause", "", lambda task: task.cause),
    Measure("attempts", "starts", "", lambda task: task.attempts),
    Measure("last_step", "global step", "", lambda task: task.global_step),
    Measure("present", "present", "", lambda _: True),
    Measure("local_step", "local steps", "count", lambda task: task.local_step),
    Measure("task_steps_per_s", "local steps/s", "1/s", lambda task: task.steps_per_s),
    Measure("loss", "final loss", "loss", lambda task: task.loss),
    Measure("test_accuracy", "accuracy", "share", lambda task: task.accuracy),
    Measure("staleness", "staleness (mean)", "updates", lambda task: task.mean_staleness),
    Measure("time_s", "time", "s", lambda task: task.time_s),
    Measure("gpu_utilisation", "GPU in use", "share", lambda task: task.gpu_utilisation),
    Measure("gpu_memory_bytes", "GPU memory", "byte", lambda task: task.gpu_memory_bytes),
    Measure("gpu_power_w", "GPU power", "W", lambda task: task.gpu_power_w),
)
"""The measures of a task; `present` counts tasks with `take: sum` in a lesson."""
