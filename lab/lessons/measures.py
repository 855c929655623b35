"""What lessons can ask of a run: its measures and settings, computed from its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from lab.errors import LabError
from lab.lessons.lesson import Operand, Value
from lab.store.directory import RunDir, altered_task, read_statuses
from lab.store.measures import OF_RUN, OF_TASK, Figure
from lab.store.run_info import RunInfo
from lab.store.settings import options_of
from lab.store.summarize import sum_up
from lab.store.summary import Summary


@dataclass(frozen=True)
class MeasuredRun:
    """A run, and its summary once a question needs it.

    Attributes:
        info: Its `run.json`.
        read: Computes its summary from its files.
    """

    info: RunInfo
    read: Callable[[], Summary]

    @classmethod
    def of(cls, run: RunDir, info: RunInfo) -> MeasuredRun:
        """Return a run of a run store."""

        def read() -> Summary:
            statuses = read_statuses(run, info)
            if task := altered_task(run, info, statuses):
                raise LabError(f"{run.run_id}: the records of {task} are not those of its agent")
            return sum_up(run, info, statuses)

        return cls(info, read)

    @cached_property
    def summary(self) -> Summary | None:
        """Its summary; None if its files are damaged."""
        try:
            return self.read()
        except (LabError, OSError):
            return None

    def setting(self, name: str) -> Figure | None:
        """Return a flag of its program or an option of `lab run`; None if neither was used."""
        value = self.info.hyperparameters.get(name)
        if isinstance(value, int | float):
            return value
        return options_of(self.info).get(name) if value is None else str(value)


_RUN: Final = {measure.name: measure.of for measure in OF_RUN}
_TASK: Final = {measure.name: measure.of for measure in OF_TASK}

_TAKES: Final[Mapping[str, Callable[[Mapping[str, float]], Figure]]] = {
    "sum": lambda of_tasks: sum(of_tasks.values()),
    "least": lambda of_tasks: min(of_tasks.values()),
    "most": lambda of_tasks: max(of_tasks.values()),
    "least-task": lambda of_tasks: min(of_tasks, key=lambda task: of_tasks[task]),
    "most-task": lambda of_tasks: max(of_tasks, key=lambda task: of_tasks[task]),
}


def figure_of(operand: Operand, runs: Mapping[str, MeasuredRun]) -> Figure | None:
    """Return a fixed value, or that of a run.

    Args:
        operand: The value.
        runs: The runs of the stage, by name.

    Returns:
        The value; None if the runs do not have it.

    Raises:
        LabError: There is no such run, measure or way to take it.
    """
    if not isinstance(operand, Value):
        return operand
    figure = _measured(operand, runs)
    if figure is None or isinstance(figure, str):
        return figure
    less, over = figure_of(operand.less, runs), figure_of(operand.over, runs)
    if not isinstance(less, int | float) or not isinstance(over, int | float) or not over:
        return None
    figure = figure - less if less else figure
    figure = figure / over if over != 1 else figure
    is_plain = operand.times == 1 and not operand.plus
    return figure if is_plain else figure * operand.times + operand.plus


def _measured(value: Value, runs: Mapping[str, MeasuredRun]) -> Figure | None:
    run = runs.get(value.of)
    if run is None:
        raise LabError(f"the stage has no run {value.of!r}")
    if value.setting:
        return run.setting(value.setting)
    if run.summary is None:
        return None
    if value.result:
        return _result(value.result, run.summary)
    if value.measure in _RUN:
        return _RUN[value.measure](run.summary)
    if value.measure not in _TASK:
        raise LabError(f"no measure {value.measure!r}")
    measure = _TASK[value.measure]
    tasks = run.summary.tasks
    if value.task:
        return next((measure(task) for task in tasks if task.task == value.task), None)
    known = ((task.task, measure(task)) for task in tasks if task.job_name == value.job)
    figures = {name: figure for name, figure in known if isinstance(figure, int | float)}
    if value.take not in _TAKES:
        raise LabError(f"cannot take {value.take!r} of {value.measure}")
    return _TAKES[value.take](figures) if figures else None


def _result(name: str, summary: Summary) -> float | None:
    """Return a result of the run; the first one if several tasks reported it."""
    values = (result.value for result in summary.results if result.name == name)
    return next((value for value in values if value is not None), None)
