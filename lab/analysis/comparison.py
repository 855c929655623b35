"""The settings and the metrics of runs, for a comparison with other runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pandas as pd

from lab.records.reader import is_number
from lab.run.status import status_or_warn
from lab.store.dataframe import steps_frame
from lab.store.directory import Probe, RunDir
from lab.store.measures import OF_TASK, quantities, run_quantities
from lab.store.names import NamedRun
from lab.store.run_info import RunInfo
from lab.store.settings import DIGITS, SEED, seed_of, settings_of
from lab.store.summarize import sum_up
from lab.store.summary import Summary, TaskSummary

STEP_FIELDS: Final = {
    "step time (median)": "step_time_s",
    "wait time (median)": "wait_time_s",
}
"""Medians over the step records, in seconds, and their fields."""

FINAL: Final = "final loss"
"""The metric of a task; that of the run is the mean of its tasks. `FINAL_LOSS` describes it."""

_PROBLEMS: Final = ("updates lost", "steps repeated", "tasks restarted", "records lost")

_ALWAYS: Final = frozenset(
    {
        "accuracy",
        "diverged at step",
        "global step",
        "global steps/s",
        "images/s",
        "local steps/s",
        *_PROBLEMS,
    }
)
"""Metrics that `lab compare` shows even if they are the same in all runs."""

_NONE: Final = (None, "")

Metrics = Mapping[str, tuple[float | None, str]]
"""Name to a value and its unit. The value may be NaN or infinite, or None if unknown.

Units are those of `lab.formatting`, or "" if unknown.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of all runs.

    Attributes:
        name: The name of the metric.
        unit: As in `Metrics`.
        values: The value of each run; None if unknown.
    """

    name: str
    unit: str
    values: Sequence[float | None]

    @property
    def is_absent_problem(self) -> bool:
        """Whether it counts a problem that no run had."""
        return self.name in _PROBLEMS and not any(self.values)

    @property
    def is_same(self) -> bool:
        """Whether all runs have the same value, and the metric need not be shown then.

        NaN is never the same. The results of an experiment have no unit, and are always shown.
        """
        first = self.values[0]
        is_minor = self.unit != "" and self.name not in _ALWAYS
        return is_minor and first is not None and all(each == first for each in self.values)

    @property
    def differences(self) -> list[float | None]:
        """The difference of each run to the first."""
        first = self.values[0]
        return [
            None if first is None or value is None else _finite(value - first)
            for value in self.values
        ]

    @property
    def ratios(self) -> list[float | None]:
        """The ratio of each run to the first; None if the first is 0."""
        first = self.values[0]
        return [
            None if not first or value is None else _finite(value / first) for value in self.values
        ]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the runs.

    Attributes:
        summary: Its summary.
        started_unix: When the user started it, in seconds since the epoch.
        made: Its settings.
        figures: The metrics of the run as a whole.
        tasks: Task to its metrics.
        label: The user's name for it, or "".
    """

    summary: Summary
    started_unix: float
    made: Mapping[str, str]
    figures: Metrics
    tasks: Mapping[str, Metrics]
    label: str = ""


def read_side(named: NamedRun, probe: Probe) -> Side:
    """Read one run.

    Raises:
        LabError: A file of the run is missing or unreadable.
    """
    run = named.directory
    status = status_or_warn(run, probe)
    info = status.info
    summary = sum_up(run, info, status.statuses)
    steps = steps_frame(run)
    return Side(
        summary=summary,
        started_unix=info.started_unix,
        made=describe(run, info),
        figures=_known(_of_run(summary, steps)),
        tasks={
            task.task: _known(_of_task(task, steps[steps["task"] == task.task]))
            for task in summary.tasks
        },
        label=named.label,
    )


def rows(runs: Sequence[Metrics]) -> list[Row]:
    """Return a row for each metric that at least one run has, in their order."""
    names = dict.fromkeys(chain.from_iterable(runs))
    units = {name: unit for run in reversed(runs) for name, (_, unit) in run.items()}
    found = [Row(name, units[name], [run.get(name, _NONE)[0] for run in runs]) for name in names]
    return [row for row in found if any(value is not None for value in row.values)]


def _of_run(summary: Summary, steps: pd.DataFrame) -> Iterator[tuple[str, float | None, str]]:
    yield from run_quantities(summary)
    yield from _of_steps(steps)
    firsts: dict[str, float | None] = {}
    for each in summary.results:
        if each.name not in firsts:
            yield each.name, firsts.setdefault(each.name, each.value), ""
        elif each.value != firsts[each.name]:
            yield f"{each.name}, {each.task}", each.value, ""


def _of_task(task: TaskSummary, steps: pd.DataFrame) -> Iterator[tuple[str, float | None, str]]:
    yield from quantities(OF_TASK, task)
    yield from _of_steps(steps)


def _of_steps(steps: pd.DataFrame) -> Iterator[tuple[str, float | None, str]]:
    for name, field in STEP_FIELDS.items():
        values = steps[field].dropna()
        yield name, float(values.median()) if len(values) else None, "s"


def _known(found: Iterator[tuple[str, float | None, str]]) -> Metrics:
    return {name: (value if is_number(value) else None, unit) for name, value, unit in found}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


_DIGEST: Final = "sha256:"


def describe(run: RunDir, info: RunInfo) -> dict[str, str]:
    """Return the settings of a run, its seed and its environment, without empty ones."""
    return settings_of(run, info) | {name: text for name, text in _environment(info) if text}


def diff(runs: Sequence[Mapping[str, str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Return which settings differ between runs, and which are the same.

    Returns:
        Name to the text of each run, "" for none; and the names of the equal settings.
    """
    names = dict.fromkeys(chain.from_iterable(runs))
    rows = {name: [each.get(name, "") for each in runs] for name in names}
    alike = [name for name, texts in rows.items() if len(set(texts)) == 1]
    return {name: texts for name, texts in rows.items() if name not in alike}, alike


def _environment(info: RunInfo) -> Iterator[tuple[str, str]]:
    yield SEED, seed_of(info)
    yield "cluster", info.project
    yield "commit", _commit(info)
    yield from ((f"{name} (tasks)", _shown(text)) for name, text in info.provenance.items())
    yield from ((f"{name} (client)", text) for name, text in info.versions.items())


def _commit(info: RunInfo) -> str:
    git = info.git or {}
    commit = str(git.get("commit", ""))[:DIGITS]
    return f"{commit} with changes" if commit and git.get("dirty") else commit


def _shown(text: str) -> str:
    """Return a digest as docker shows it; any other text unchanged."""
    is_digest = text.startswith(_DIGEST)
    return text.removeprefix(_DIGEST)[:DIGITS] if is_digest else text
