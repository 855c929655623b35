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
    """A run with all that is asked of it.

    Attributes:
        info: Its `run.json`.
        read: Computes its summary from its files.
    """

    info: RunInfo
    read: Callable[[], Summary]

    @classmethod
    def of(cls, run: RunDir, info: RunInfo) -> MeasuredRun:
        """A run of a run store."""

        def read() -> Summary:
            statuses = read_statuses(run, info)
            if task := altered_task(run, info, statuses):
                raise LabError(f"{run.run_id}: the records of {task} are not those of its agent")
            return sum_up(run, info, statuses)

        return cls(info, read)

    @cached_property
    def summary(self) -> Summary | None:
        """Its summary; None: its files are damaged."""
        try:
            return self.read()
        except (LabError, OSError):
            return None

    def setting(self, name: str) -> Figure | None:
        """Return a flag of its program or an option of `lab run`; None: neither was used."""
        value = self.info.hyperparameters.get(name)
        if isinstance(value, int | float):
            return value
        return options_of(self.info).get(name) if value is None else str(value)


_RUN: Final = {measure.name: measure.of for measure in OF_RUN}
_TASK: Final = {measure.name: measure.of for measure in OF_TASK}

_TAKES: Final[Mapping[str, Callable[[Mapping[str, float]], Figure]]] = {
    "sum": lambda found: sum(found.values()),
    "least": lambda found: min(found.values()),
    "most": lambda found: max(found.values()),
    "least-task": lambda found: min(found, key=lambda task: found[task]),
    "most-task": lambda found: max(found, key=lambda task: found[task]),
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
    found = _found(operand, runs)
    if found is None or isinstance(found, str):
        return found
    less, over = figure_of(operand.less, runs), figure_of(operand.over, runs)
    if not isinstance(less, int | float) or not isinstance(over, int | float) or not over:
        return None
    found = found - less if less else found
    found = found / over if over != 1 else found
    is_plain = operand.times == 1 and not operand.plus
    return found if is_plain else found * operand.times + operand.plus


def _found(value: Value, runs: Mapping[str, MeasuredRun]) -> Figure | None:
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
    figures = {name: each for name, each in known if isinstance(each, int | float)}
    if value.take not in _TAKES:
        raise LabError(f"cannot take {value.take!r} of {value.measure}")
    return _TAKES[value.take](figures) if figures else None


def _result(name: str, summary: Summary) -> float | None:
    """Return a result of the run; the first one if several tasks reported it."""
    found = (each.value for each in summary.results if each.name == name)
    return next((each for each in found if each is not None), None)
