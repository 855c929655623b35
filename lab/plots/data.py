"""The data of the figures: a run's steps on one clock, its GPU samples and its marks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pandas as pd

from lab.records.reader import STEPS
from lab.statistics import Floats
from lab.store.gpu_samples import samples
from lab.store.run_info import RunInfo
from lab.store.summary import TaskSummary, first_divergence
from lab.volume.states import State

_LARGEST: Final = 3.5e38  # a float32, as TensorFlow computes with
_LONGEST_S: Final = 1e8  # three years; a larger distance means a broken clock
_COLUMNS: Final = (
    "attempt", "local_step", "global_step", "loss", "staleness", "batch_size", "examples",
    "step_time_s", "wait_time_s", "time_unix",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mark:
    """An event of a task during the run: a fault, a late start or a new start.

    Attributes:
        task: The task.
        what: `fault`, `late start` or `new start`.
        text: A description for users.
        begin: When it began, in seconds of the run.
        end: When it ended, in seconds of the run; None if it was momentary or never ended.
        stands_still: Whether the task made no steps meanwhile.
    """

    task: str
    what: str
    text: str
    begin: float
    end: float | None = None
    stands_still: bool = False


def _no_evaluations() -> pd.DataFrame:
    columns = {"seconds": float, "global_step": float, "accuracy": float, "is_final": bool}
    return pd.DataFrame(columns=["task", *columns]).astype(columns)


@dataclass(frozen=True, slots=True)
class Trace:
    """One run, ready to be drawn.

    Attributes:
        label: The run's name in a legend.
        group: The name of its group; runs of one group differ only by their seeds.
        info: Its `run.json`.
        steps: A row for each step record, in order of time: `task`, `seconds` of the run,
            `local_step`, `global_step`, `loss`, `staleness`, `images` seen by all workers together,
            `step_time_s`, `wait_time_s`; NaN if the record lacks the value.
        samples: A row for each sample of a GPU: `task`, `gpu`, `seconds`, `utilisation` (0 to 1).
        marks: In order of time.
        left_out: The number of step records without a usable time.
        clock: The label of an axis of `seconds`.
        tasks: The summary of each task.
        evaluations: A row for each test on the test images, in order of time: `task`, `seconds`,
            `global_step`, `accuracy` (0 to 1), `is_final` (whether it tests the final parameters).
    """

    label: str
    group: str
    info: RunInfo
    steps: pd.DataFrame
    samples: pd.DataFrame
    marks: tuple[Mark, ...] = ()
    left_out: int = 0
    clock: str = "wall time since the submission (s)"
    tasks: Sequence[TaskSummary] = ()
    evaluations: pd.DataFrame = field(default_factory=_no_evaluations)

    @property
    def workers(self) -> list[str]:
        """The tasks with a step record, in the cluster's order."""
        there = set(self.steps["task"])
        known = [task for task in self.info.task_names() if task in there]
        return known + sorted(there.difference(known))

    @property
    def has_result(self) -> bool:
        """Whether it succeeded and did not diverge: only then its last accuracy is a result."""
        return self.info.state is State.SUCCEEDED and first_divergence(self.tasks) is None

    @property
    def has_a_second_record(self) -> bool:
        """Whether a worker has recorded two different steps, its own or global ones."""
        steps = self.steps["local_step"].fillna(self.steps["global_step"])
        counts = steps.groupby(self.steps["task"]).nunique()
        return bool((counts > 1).any())

    @property
    def is_of_one_model(self) -> bool:
        """Whether its workers train one model: their steps count its updates."""
        return len(self.workers) > 1 and bool(self.steps["global_step"].notna().any())

    @property
    def leaving_s(self) -> float:
        """When the first worker finished, in seconds of the run; infinity if none has.

        A task that failed or was lost has not finished: its end shows in the run's speed.
        """
        done = {each.task for each in self.tasks if each.state == State.SUCCEEDED}
        ends = self.steps.groupby("task")["seconds"].max()
        return min((end for task, end in ends.items() if task in done), default=math.inf)

    def of(self, task: str) -> pd.DataFrame:
        """The steps of one task."""
        return self.steps[self.steps["task"] == task]

    def points(self, x: str, y: str, task: str | None = None) -> tuple[Floats, Floats]:
        """Two columns of the steps that have both, of all tasks or of one, in the order of `x`."""
        return points(self.steps if task is None else self.of(task), x, y)

    def values(self, name: str, task: str | None = None) -> Floats:
        """The numbers of a column without NaN, of all tasks or of one."""
        steps = self.steps if task is None else self.of(task)
        return np.asarray(steps[name].dropna(), np.float64)

    @property
    def end(self) -> float:
        """The time of the last step or mark, in seconds of the run."""
        ends = [float(self.steps["seconds"].max())] if len(self.steps) else []
        ends += [mark.end if mark.end is not None else mark.begin for mark in self.marks]
        return max([0.0, *ends])


def points(rows: pd.DataFrame, x: str, y: str) -> tuple[Floats, Floats]:
    """Two columns of the rows that have both, in the order of the first one."""
    both = rows[[x, y]].dropna().sort_values(x, kind="stable")
    return np.asarray(both[x], np.float64), np.asarray(both[y], np.float64)


def steps_of(info: RunInfo, records: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The step records on the run's clock.

    Args:
        info: The run.
        records: A row for each record: `task`, `kind`, and the numbers of the record grammar.

    Returns:
        The table that `Trace.steps` describes, and the number of records without a usable time.
    """
    rows = records[records["kind"].isin(STEPS)]
    table = pd.DataFrame(
        {name: _numbers(rows[name]) for name in _COLUMNS}, index=pd.RangeIndex(len(rows))
    )
    table.insert(0, "task", np.asarray(rows["task"], object))
    table["seconds"] = table.pop("time_unix") - info.zero_unix
    usable = table["seconds"].abs() < _LONGEST_S
    kept = table[usable].sort_values("seconds", kind="stable").reset_index(drop=True)
    gpu_counts = {row.get("task", ""): len(row.get("gpus", ())) for row in info.tasks}
    kept["images"] = _images(kept, _batch_size(info, records), gpu_counts)
    return kept.drop(columns=["examples", "batch_size"]), int((~usable).sum())


def evaluations_of(info: RunInfo, records: pd.DataFrame) -> pd.DataFrame:
    """The tests of a run on its clock, as `Trace.evaluations` describes.

    A record with a message and without a probe is left out: it tests other parameters, such as
    moving averages.
    """
    is_final = records["probe"].notna()
    rows = records[(records["kind"] == "eval") & (is_final | records["message"].isna())]
    found = pd.DataFrame(
        {
            "task": np.asarray(rows["task"], object),
            "seconds": _numbers(rows["time_unix"]) - info.zero_unix,
            "global_step": _numbers(rows["global_step"]),
            "accuracy": _numbers(rows["accuracy"]),
            "is_final": np.asarray(rows["probe"].notna(), bool),
        }
    )
    usable = (found["seconds"].abs() < _LONGEST_S) & found["accuracy"].between(0, 1)
    return found[usable].sort_values("seconds", kind="stable").reset_index(drop=True)


def _numbers(column: pd.Series) -> Floats:
    """A column as floats; missing, infinite and huge values become NaN."""
    values = column.to_numpy(np.float64, na_value=np.nan)
    return np.where(np.abs(values) < _LARGEST, values, np.nan)


def _batch_size(info: RunInfo, records: pd.DataFrame) -> float:
    """The number of images of a step, from the records or `run.json`; NaN if it is not known."""
    printed = _numbers(records["batch_size"])
    printed = printed[~np.isnan(printed)]
    if len(printed):
        return float(printed[0])
    given = info.hyperparameters.get("batch_size")
    return float(given) if isinstance(given, int | float) else np.nan


def _images(steps: pd.DataFrame, batch_size: float, gpus: Mapping[str, int]) -> Floats:
    """Images that all workers had seen at each step, interpolated linearly between records.

    A worker's `examples` count its own images. In the all-reduce programs, whose steps are made by
    all workers together, each record counts the images of all workers. These are not added up.

    Args:
        steps: The step records, in order of time.
        batch_size: Images in a batch; each of a worker's GPUs takes one batch a step.
        gpus: Task to its number of GPUs.
    """
    seconds = np.asarray(steps["seconds"], np.float64)
    total, of_all = np.zeros(len(steps)), np.zeros(len(steps))
    for task, rows in steps.groupby("task", sort=False):
        by_steps = rows["local_step"] * batch_size
        own = rows["examples"].fillna(by_steps)
        is_of_all = bool((own > by_steps * max(1, gpus.get(str(task), 0))).any())
        # A restarted program counts from 0.
        peaks = own.groupby(rows["attempt"]).max().sort_index().cumsum()
        before = rows["attempt"].map(peaks.shift(fill_value=0.0)).fillna(0.0)
        counted = np.asarray(own + before, np.float64)
        reached = np.interp(seconds, np.asarray(rows["seconds"], np.float64), counted, left=0.0)
        if is_of_all:
            of_all = np.maximum(of_all, reached)
        else:
            total += reached
    return total + of_all


def samples_of(info: RunInfo, lines: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The utilisation of each sample of `gpu.jsonl` on the run's clock."""
    rows = []
    for sample in samples(lines):
        seconds = sample.time_unix - info.zero_unix
        if sample.utilisation is not None and abs(seconds) < _LONGEST_S:
            rows.append((sample.task, sample.gpu, seconds, sample.utilisation))
    return pd.DataFrame(rows, columns=["task", "gpu", "seconds", "utilisation"])


def first_step(steps: pd.DataFrame) -> float:
    """When the first of these steps began, in seconds of the run.

    The first record may follow many steps. Its step time gives the time before it. Without a step
    time the result is the time of the record.

    Args:
        steps: Rows of `Trace.steps`, in order of time; at least one.
    """
    first = steps.iloc[0]
    before = float(first["local_step"]) * float(first["step_time_s"])
    return float(first["seconds"]) - (before if 0 <= before < _LONGEST_S else 0.0)


def from_first_step(run: Trace) -> Trace:
    """The same run on a clock that begins when its first worker began to train, to compare runs."""
    if not len(run.steps):
        return run
    zero = min(first_step(run.of(task)) for task in run.workers)
    marks = tuple(
        replace(mark, begin=mark.begin - zero, end=None if mark.end is None else mark.end - zero)
        for mark in run.marks
    )
    return replace(
        run,
        steps=run.steps.assign(seconds=run.steps["seconds"] - zero),
        samples=run.samples.assign(seconds=run.samples["seconds"] - zero),
        evaluations=run.evaluations.assign(seconds=run.evaluations["seconds"] - zero),
        marks=marks,
        clock="wall time since the first step began (s)",
    )


class _OfGroup(Protocol):
    """A run that has the name of its group."""

    @property
    def group(self) -> str: ...


Grouped = TypeVar("Grouped", bound=_OfGroup)


def grouped(runs: Iterable[Grouped]) -> dict[str, list[Grouped]]:
    """The runs of each group, in order of appearance."""
    found: dict[str, list[Grouped]] = {}
    for run in runs:
        found.setdefault(run.group, []).append(run)
    return found
