"""The data of the figures: a run's steps, tests and GPU samples in one table, and its marks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from lab.base.statistics import Floats
from lab.protocol.records.reader import STEPS
from lab.protocol.volume.states import State
from lab.runner.store.gpu_samples import samples
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summary import TaskSummary, first_divergence

_LARGEST: Final = 3.5e38  # a float32, as TensorFlow computes with
_LONGEST_S: Final = 1e8  # three years; a larger distance means a broken clock
_FIELDS: Final = (
    "attempt", "local_step", "global_step", "loss", "staleness", "batch_size", "examples",
    "step_time_s", "accuracy", "time_unix",
)  # fmt: skip
_PLACE: Final = ["task", "seconds", "step", "images"]
_OF_STEP: Final = ["local_step", "global_step", "seen", "loss", "staleness", "step_time_s"]


@dataclass(frozen=True, slots=True)
class Mark:
    """An event of a task during the run: a fault, a late start or a new start.

    Attributes:
        task: The task.
        what: `fault`, `late start` or `new start`.
        text: A description for users.
        begin: When it began, in seconds of the run.
        end: When it ended, in seconds of the run; None if it was momentary or never ended.
    """

    task: str
    what: str
    text: str
    begin: float
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """One run, ready to be drawn.

    Attributes:
        label: The run's name in a legend.
        group: The name of its group; runs of one group differ only by their seeds.
        info: Its `run.json`.
        data: The table of `tidy`.
        marks: In order of time.
        left_out: The number of step records without a usable time.
        clock: The label of an axis of `seconds`.
        tasks: The summary of each task.
    """

    label: str
    group: str
    info: RunInfo
    data: pd.DataFrame
    marks: tuple[Mark, ...] = ()
    left_out: int = 0
    clock: str = "wall time since the submission (s)"
    tasks: Sequence[TaskSummary] = ()

    @property
    def workers(self) -> list[str]:
        """The tasks with a step record, in the cluster's order."""
        there = set(self.of("loss")["task"])
        known = [task for task in self.info.task_names() if task in there]
        return known + sorted(there.difference(known))

    @property
    def has_result(self) -> bool:
        """Whether it succeeded and did not diverge: only then its last accuracy is a result."""
        return self.info.state is State.SUCCEEDED and first_divergence(self.tasks) is None

    @property
    def has_a_second_record(self) -> bool:
        """Whether a worker has recorded two different steps, its own or global ones."""
        steps = self.data[self.data["measure"].isin(["local_step", "global_step"])]
        return bool((steps.groupby(["task", "measure"])["value"].nunique() > 1).any())

    @property
    def is_of_one_model(self) -> bool:
        """Whether its workers train one model: their steps count its updates."""
        return len(self.workers) > 1 and len(self.values("global_step")) > 0

    @property
    def leaving_s(self) -> float:
        """When the first worker finished, in seconds of the run; infinity if none has.

        A task that failed or was lost has not finished: its end shows in the run's speed.
        """
        done = {each.task for each in self.tasks if each.state == State.SUCCEEDED}
        ends = self.of("loss").groupby("task")["seconds"].max()
        return min((end for task, end in ends.items() if task in done), default=math.inf)

    def of(self, measure: str, task: str | None = None) -> pd.DataFrame:
        """The rows of a measure in order of time, of all tasks or of one."""
        rows = self.data[self.data["measure"] == measure]
        return rows if task is None else rows[rows["task"] == task]

    def points(self, x: str, measure: str, task: str | None = None) -> tuple[Floats, Floats]:
        """A measure by `seconds`, `step` or `images`, in this order, where both are known."""
        both = self.of(measure, task)[[x, "value"]].dropna().sort_values(x, kind="stable")
        return np.asarray(both[x], np.float64), np.asarray(both["value"], np.float64)

    def values(self, measure: str, task: str | None = None) -> Floats:
        """The known values of a measure, of all tasks or of one."""
        return np.asarray(self.of(measure, task)["value"].dropna(), np.float64)

    def first_step(self, task: str) -> float:
        """When the first step of a task with step records began, in seconds of the run.

        The first record may follow many steps. Its step time gives the time before it. Without a
        step time the result is the time of the record.
        """
        first, took_s = (self.of(name, task).iloc[0] for name in ("local_step", "step_time_s"))
        before = float(first["value"]) * float(took_s["value"])
        return float(first["seconds"]) - (before if 0 <= before < _LONGEST_S else 0.0)

    @property
    def end(self) -> float:
        """The time of the last step or mark, in seconds of the run."""
        ends = [mark.begin if mark.end is None else mark.end for mark in self.marks]
        return float(max([0.0, *self.of("loss")["seconds"], *ends]))


def tidy(
    info: RunInfo, records: pd.DataFrame, gpu_lines: Iterable[Mapping[str, Any]]
) -> tuple[pd.DataFrame, int]:
    """All that figures show of a run, as one table.

    Args:
        info: The run.
        records: A row for each record: `task`, `kind`, and the numbers of the record grammar.
        gpu_lines: The content of `gpu.jsonl`.

    Returns:
        A row for each value in order of time, and the number of step records without a usable
        time. The columns are `task`, `seconds` of the run, `step` (the global one), `images` seen
        by all workers together, `measure` and `value`, which is NaN if a step record lacks it. The
        measures are `seen` (as `images`), `utilisation` (0 to 1), `accuracy` of the test images (0
        to 1), `final_accuracy` (that of the final parameters), and fields of a step record.
    """
    is_step = records["kind"].isin(STEPS)
    steps = _on_clock(info, records[is_step])
    gpu_counts = {row.get("task", ""): len(row.get("gpus", ())) for row in info.tasks}
    steps["images"] = steps["seen"] = _images(steps, _batch_size(info, records), gpu_counts)
    # A first step is never stale.
    steps["staleness"] = steps["staleness"].mask(steps["local_step"] == 1)
    parts = [steps.melt(_PLACE, _OF_STEP, "measure")]
    parts += [*_tests(info, records), _utilisation(info, gpu_lines)]
    table = pd.concat([part for part in parts if len(part)] or parts[:1])
    table = table.sort_values("seconds", kind="stable", ignore_index=True)
    return table, int(is_step.sum()) - len(steps)


def _on_clock(info: RunInfo, rows: pd.DataFrame) -> pd.DataFrame:
    """The numbers of the records that have a usable time, in order of time."""
    table = pd.DataFrame({name: _numbers(rows[name]) for name in _FIELDS})
    table["task"] = np.asarray(rows["task"], object)
    table["seconds"], table["step"] = table["time_unix"] - info.zero_unix, table["global_step"]
    table["images"] = np.nan
    usable = table[table["seconds"].abs() < _LONGEST_S]
    return usable.sort_values("seconds", kind="stable", ignore_index=True)


def _tests(info: RunInfo, records: pd.DataFrame) -> Iterable[pd.DataFrame]:
    """The tests of the parameters, and those of the final ones.

    A record with a message and without a probe is left out: it tests other parameters, such as
    moving averages.
    """
    is_test, is_final = records["kind"] == "eval", records["probe"].notna()
    for measure, chosen in (
        ("accuracy", is_final | records["message"].isna()),
        ("final_accuracy", is_final),
    ):
        tests = _on_clock(info, records[is_test & chosen]).assign(measure=measure)
        tests = tests.rename(columns={"accuracy": "value"})
        yield tests.loc[tests["value"].between(0, 1), [*_PLACE, "measure", "value"]]


def _utilisation(info: RunInfo, lines: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    rows = [
        (sample.task, seconds, math.nan, math.nan, "utilisation", sample.utilisation)
        for sample in samples(lines)
        if sample.utilisation is not None
        and abs(seconds := sample.time_unix - info.zero_unix) < _LONGEST_S
    ]
    return pd.DataFrame(rows, columns=[*_PLACE, "measure", "value"])


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


def from_first_step(run: Trace) -> Trace:
    """The same run on a clock that begins when its first worker began to train, to compare runs."""
    if not run.workers:
        return run
    zero = min(map(run.first_step, run.workers))
    marks = tuple(
        replace(mark, begin=mark.begin - zero, end=None if mark.end is None else mark.end - zero)
        for mark in run.marks
    )
    return replace(
        run,
        data=run.data.assign(seconds=run.data["seconds"] - zero),
        marks=marks,
        clock="wall time since the first step began (s)",
    )


def grouped(runs: Iterable[Trace]) -> dict[str, list[Trace]]:
    """The runs of each group, in order of appearance."""
    found: dict[str, list[Trace]] = {}
    for run in runs:
        found.setdefault(run.group, []).append(run)
    return found
