"""What figures are drawn from: the steps of a run on one clock, its cards' samples, its marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Final

import msgspec
import numpy as np
import pandas as pd

from lab.run.dataframe import STEPS
from lab.run.run_info import RunInfo
from lab.statistics import Floats

_LARGEST: Final = 3.5e38  # a float32, as TensorFlow computes with
_LONGEST_S: Final = 1e8  # three years: what claims to be further off is a broken clock
_COLUMNS: Final = (
    "attempt", "local_step", "global_step", "loss", "staleness", "batch_size", "examples",
    "step_time_s", "wait_time_s", "time_unix",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to a task while the run was under way.

    Attributes:
        task: The task.
        what: `fault`, `late start` or `new start`.
        text: In words.
        begin: When, in seconds of the run.
        end: When it was over, in seconds of the run; None for what was done once, or never ended.
        stands_still: Whether the task made nothing meanwhile.
    """

    task: str
    what: str
    text: str
    begin: float
    end: float | None = None
    stands_still: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """One run, ready to be drawn.

    Attributes:
        label: What it is called in a legend.
        group: The group's name: runs of one group differ by their seeds alone.
        info: Its `run.json`.
        steps: A row for each step record, in order of time: `task`, `seconds` of the run,
            `local_step`, `global_step`, `loss`, `staleness`, `images` that all workers together
            had seen, `step_time_s`, `wait_time_s`; NaN where a record does not tell.
        samples: A row for each sample of a card: `task`, `gpu`, `seconds`, `utilisation` (0 to 1).
        marks: In order of time.
        left_out: How many step records have no usable time.
        clock: What an axis of its seconds is called.
    """

    label: str
    group: str
    info: RunInfo
    steps: pd.DataFrame
    samples: pd.DataFrame
    marks: tuple[Mark, ...] = ()
    left_out: int = 0
    clock: str = "wall time (s)"

    @property
    def workers(self) -> list[str]:
        """The tasks that have made a step, in the cluster's order."""
        there = set(self.steps["task"])
        known = [task for task in self.info.task_names() if task in there]
        return known + sorted(there.difference(known))

    @property
    def has_a_second_record(self) -> bool:
        """Whether a worker has recorded two steps, so that something can be seen to change."""
        counts = self.steps.groupby("task")["local_step"].nunique()
        return bool((counts > 1).any())

    def of(self, task: str) -> pd.DataFrame:
        """The steps of one task."""
        return self.steps[self.steps["task"] == task]

    def column(self, name: str) -> Floats:
        """A column of all steps."""
        return np.asarray(self.steps[name], np.float64)

    def values(self, name: str, task: str | None = None) -> Floats:
        """The numbers of a column that there are, of all tasks or of one."""
        steps = self.steps if task is None else self.of(task)
        return np.asarray(steps[name].dropna(), np.float64)

    @property
    def end(self) -> float:
        """The last moment that anything tells of, in seconds of the run."""
        ends = [float(self.steps["seconds"].max())] if len(self.steps) else []
        ends += [mark.end if mark.end is not None else mark.begin for mark in self.marks]
        return max([0.0, *ends])


def zero_of(info: RunInfo) -> float:
    """The moment from which seconds of a run count: when it was handed to its tasks."""
    return info.submitted_unix if info.submitted_unix is not None else info.started_unix


def steps_of(info: RunInfo, records: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The step records on the run's clock.

    Args:
        info: Whose records they are.
        records: A row a record: `task`, `kind`, and the numbers of the record grammar.

    Returns:
        The table that `Trace.steps` describes, and how many records have no usable time.
    """
    rows = records[records["kind"].isin(STEPS)]
    table = pd.DataFrame(
        {name: _numbers(rows[name]) for name in _COLUMNS}, index=pd.RangeIndex(len(rows))
    )
    table.insert(0, "task", np.asarray(rows["task"], object))
    table["seconds"] = table.pop("time_unix") - zero_of(info)
    usable = table["seconds"].abs() < _LONGEST_S
    kept = table[usable].sort_values("seconds", kind="stable").reset_index(drop=True)
    gpu_counts = {
        str(row.get("task")): len(gpus)
        for row in info.tasks
        if isinstance(gpus := row.get("gpus"), list | tuple)
    }
    kept["images"] = _images(kept, _batch_size(info, records), gpu_counts)
    return kept.drop(columns=["examples", "batch_size"]), int((~usable).sum())


def _numbers(column: pd.Series) -> Floats:
    """As floats; what is missing, infinite or beyond all measure is NaN."""
    values = column.to_numpy(np.float64, na_value=np.nan)
    return np.where(np.abs(values) < _LARGEST, values, np.nan)


def _batch_size(info: RunInfo, records: pd.DataFrame) -> float:
    """How many images a step takes, as far as anything tells; NaN where nothing does."""
    printed = _numbers(records["batch_size"])
    printed = printed[~np.isnan(printed)]
    if len(printed):
        return float(printed[0])
    given = info.hyperparameters.get("batch_size")
    return float(given) if isinstance(given, int | float) else np.nan


def _images(steps: pd.DataFrame, batch_size: float, gpus: Mapping[str, int]) -> Floats:
    """Images that all workers had seen at each step; between two records they grow evenly.

    A worker's `examples` are its own images, but where a step is made by all workers together (the
    all-reduce programs): there each record counts everybody's, and these add up to no more.

    Args:
        steps: The step records, in order of time.
        batch_size: Images in a batch; each of a worker's cards takes one a step.
        gpus: Task to how many cards it has.
    """
    seconds = np.asarray(steps["seconds"], np.float64)
    total, of_all = np.zeros(len(steps)), np.zeros(len(steps))
    for task, rows in steps.groupby("task", sort=False):
        by_steps = rows["local_step"] * batch_size
        own = rows["examples"].fillna(by_steps)
        is_of_all = bool((own > by_steps * max(1, gpus.get(str(task), 0))).any())
        # A program that was started again counts from 0.
        peaks = own.groupby(rows["attempt"]).max().sort_index().cumsum()
        before = rows["attempt"].map(peaks.shift(fill_value=0.0)).fillna(0.0)
        counted = np.asarray(own + before, np.float64)
        reached = np.interp(seconds, np.asarray(rows["seconds"], np.float64), counted, left=0.0)
        if is_of_all:
            of_all = np.maximum(of_all, reached)
        else:
            total += reached
    return total + of_all


class _Sample(msgspec.Struct):
    """A line of `gpu.jsonl`, as far as it is drawn."""

    task: str
    gpu: str
    time_unix: float
    utilisation: Annotated[float, msgspec.Meta(ge=0, le=1)]


def samples_of(info: RunInfo, lines: Iterable[object]) -> pd.DataFrame:
    """The samples of `gpu.jsonl` on the run's clock; what is none is passed over."""
    rows = []
    for line in lines:
        with suppress(msgspec.ValidationError):
            sample = msgspec.convert(line, _Sample)
            seconds = sample.time_unix - zero_of(info)
            if abs(seconds) < _LONGEST_S:
                rows.append((sample.task, sample.gpu, seconds, sample.utilisation))
    return pd.DataFrame(rows, columns=["task", "gpu", "seconds", "utilisation"])


def first_step(steps: pd.DataFrame) -> float:
    """When the first of these steps began, in seconds of the run.

    The first record stands behind many steps, and tells how long each took; where it does not, its
    own time is all that is known.

    Args:
        steps: Rows of `Trace.steps`, in order of time; at least one.
    """
    first = steps.iloc[0]
    before = float(first["local_step"]) * float(first["step_time_s"])
    return float(first["seconds"]) - (before if 0 <= before < _LONGEST_S else 0.0)


def from_first_step(run: Trace) -> Trace:
    """The same run on a clock that begins with its first step, so that runs can be compared."""
    if not len(run.steps):
        return run
    zero = first_step(run.steps)
    marks = tuple(
        replace(mark, begin=mark.begin - zero, end=None if mark.end is None else mark.end - zero)
        for mark in run.marks
    )
    return replace(
        run,
        steps=run.steps.assign(seconds=run.steps["seconds"] - zero),
        samples=run.samples.assign(seconds=run.samples["seconds"] - zero),
        marks=marks,
        clock="wall time since the first step (s)",
    )


def grouped(runs: Sequence[Trace]) -> dict[str, list[Trace]]:
    """Group to its runs, in order of appearance."""
    found: dict[str, list[Trace]] = {}
    for run in runs:
        found.setdefault(run.group, []).append(run)
    return found


def has_repeats(runs: Sequence[Trace]) -> bool:
    """Whether a group has several runs, so that there are means over runs, with their intervals."""
    return len(grouped(runs)) < len(runs)
