"""The measured quantities of runs: one value of each run.

A claim names a function of this module, or a measure of `lab.runner.store.measures`. None and NaN:
the run does not have the value.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import numpy as np
import pandas as pd

from lab.protocol.experiments.faults import DONE, OVER, Kind
from lab.runner.store.measures import OF_RUN, OF_TASK
from lab.study.reproduce.claims import DATA
from lab.study.reproduce.measured_runs import MeasuredRun

LEAST_RECORDS: Final = 30
"""A share of fewer records says little."""


def in_table(run: MeasuredRun, name: str, worker: int | None = None) -> float | None:
    """A measure of `lab.runner.store.measures`, of the run or of a worker."""
    if worker is None:
        (value,) = (each.of(run.summary) for each in OF_RUN if each.name == name)
    else:
        (value,) = (each.of(run.workers[worker]) for each in OF_TASK if each.name == name)
    if value is None:  # steps that no worker recorded were not made
        return 0.0 if name in {"global_step", "local_step"} else None
    return float(value)


# Settings and checks.


def flag(run: MeasuredRun, name: str) -> float | None:
    """A recorded hyperparameter."""
    value = run.info.hyperparameters.get(name)
    return float(value) if isinstance(value, int | float) else None


def learning_rate(run: MeasuredRun, wanted: float) -> float | None:
    """The worker's rate that differs most from the wanted one; None: a worker reports none."""
    rates = run.records.groupby("task", observed=True)["learning_rate"].last().dropna()
    return (
        max(rates, key=lambda rate: abs(rate - wanted)) if len(rates) == len(run.workers) else None
    )


def local_total(run: MeasuredRun) -> float:
    """The steps of all workers."""
    return sum(worker.local_step or 0 for worker in run.workers)


def beyond_reference(run: MeasuredRun, mode: str) -> float | None:
    """The final accuracy minus that of the NumPy reference from the same initial weights."""
    known, accuracy = reference(mode), run.summary.accuracy
    if run.info.seed not in known or accuracy is None:
        return None
    return accuracy - float(known[run.info.seed].mean())


# Printed numbers.


def global_step_at(run: MeasuredRun, worker: int, local_step: int) -> float | None:
    """The global step after a number of a worker's own steps."""
    there = (run.steps["task"] == f"worker-{worker}") & (run.steps["local_step"] == local_step)
    return next(iter(run.steps["global_step"][there]), None)


def accuracy_at_end(run: MeasuredRun) -> float | None:
    """The final test accuracy of the worker that ended last."""
    ends = run.by_worker["global_step"].last()
    return None if ends.isna().any() else run.workers[int(ends.argmax())].accuracy


def losses_near(run: MeasuredRun, steps: list[int]) -> float | None:
    """The geometric mean of the losses that were recorded nearest to some global steps."""
    rows = run.steps.sort_values("global_step", kind="stable")
    if rows.empty or rows["global_step"].iloc[-1] < max(steps):
        return None
    nearest = [int((rows["global_step"] - step).abs().argmin()) for step in steps]
    losses = rows["loss"].iloc[nearest]
    return float(np.exp(np.mean(np.log(losses.where(losses > 0).to_numpy()))))


def pace(run: MeasuredRun) -> float | None:
    """Global steps for each of worker 0's own steps, while all workers train."""
    steps = _together(run)
    steps = steps[steps["task"] == "worker-0"]
    return _growth(steps, "global_step", "local_step") if len(steps) >= LEAST_RECORDS else None


def _growth(steps: pd.DataFrame, of: str, for_each: str) -> float:
    """How much a column grows for each unit of another; NaN: that one does not grow."""
    total, unit = (steps[name].iloc[-1] - steps[name].iloc[0] for name in (of, for_each))
    return float(total / unit) if unit > 0 else math.nan


# Statements without a number.


def _together(run: MeasuredRun) -> pd.DataFrame:
    """The steps from the time in which all workers trained."""
    begun, ended = run.by_worker["global_step"].first(), run.by_worker["global_step"].last()
    limits = begun.max(skipna=False), ended.min(skipna=False)
    return run.steps[run.steps["global_step"].between(*limits)]


def accuracy_range(run: MeasuredRun) -> float:
    """The highest minus the lowest final accuracy of a run's workers."""
    tested = pd.Series([worker.accuracy for worker in run.workers], dtype=float)
    return round(tested.max(skipna=False) - tested.min(skipna=False), 6)


def uneven_share(run: MeasuredRun) -> float | None:
    """The share of stretches between records in which the global step grows unusually.

    The growth is taken for each own step. It is unusual if it is not the worker's most frequent.
    """
    steps = _together(run)
    stretches = steps.groupby("task", observed=True)[["local_step", "global_step"]].diff()
    growths = (stretches["global_step"] / stretches["local_step"])[stretches["local_step"] > 0]
    every = len(growths)
    usual = sum(of.value_counts().max() for _, of in growths.groupby(steps["task"], observed=True))
    return (every - usual) / every if every >= LEAST_RECORDS else None


def remainder_share(run: MeasuredRun) -> float | None:
    """The share of a worker's most frequent remainder of the global step; the largest of all.

    The remainder is by the number of workers. Workers that take turns always have the same one.
    """
    steps = _together(run)
    remainders = (steps["global_step"] % len(run.workers)).groupby(steps["task"], observed=False)
    if remainders.size().min() < LEAST_RECORDS:
        return None
    return max(of.value_counts(normalize=True).max() for _, of in remainders)


def steps_apart(run: MeasuredRun) -> float:
    """The largest difference between a worker's own steps and the global step."""
    return float((run.steps["global_step"] - run.steps["local_step"]).abs().max())


def steadiness(run: MeasuredRun, against: MeasuredRun) -> float | None:
    """The unsteadiness of the loss, relative to that of another run with the same seed."""
    mine, theirs = _unsteadiness(run), _unsteadiness(against)
    return mine / theirs if theirs else None


def _unsteadiness(run: MeasuredRun) -> float:
    """The standard deviation of the logarithms of ratios of neighbouring losses of one worker.

    Neighbours remove the trend, logarithms the size of the loss. Only single workers' losses are
    compared: the mean of several batches is steadier than one batch in any training. The second
    half of the training counts.
    """
    ratios: list[float] = []
    for _, losses in run.by_worker["loss"]:
        good = losses[losses.between(0, math.inf, inclusive="neither")].tolist()
        late = good[len(good) // 2 :]
        ratios += [math.log(b / a) for a, b in zip(late[::2], late[1::2], strict=False)]
    return float(np.std(ratios)) if len(ratios) >= LEAST_RECORDS else math.nan


# The speed of the workers while one of them is slowed: only records within the fault's window.


def _speeds(run: MeasuredRun, *, during: bool) -> tuple[float, float]:
    """Own steps per second of the slowed worker, and the mean of the others, while all train.

    Args:
        run: The run.
        during: Whether while the fault lasts, or after it.
    """
    moments = pd.concat(run.events(f"{moment}{Kind.SLOW}").tail(1) for moment in (DONE, OVER))
    times = moments["time_unix"].dropna().tolist()
    if len(times) < len((DONE, OVER)):
        return math.nan, math.nan
    begin, end = times if during else (times[1], math.inf)
    begin = max(begin, run.by_worker["time_unix"].first().max())
    end = min(end, run.by_worker["time_unix"].last().min())
    within = run.steps[run.steps["time_unix"].between(begin, end)].groupby("task", observed=False)
    speeds = pd.Series({worker: _speed(steps) for worker, steps in within})
    own = speeds.pop(moments["task"].iloc[0])
    return own, speeds.mean(skipna=False)


def _speed(steps: pd.DataFrame) -> float:
    """A worker's own steps per second; NaN: it has fewer than three records, or made no step."""
    speed = _growth(steps, "local_step", "time_unix") if len(steps) > 2 else 0  # noqa: PLR2004
    return speed or math.nan


def others_slowed(run: MeasuredRun) -> float:
    """The others' speed during the fault, as a share of their speed after it."""
    (own, during), (own_after, after) = (_speeds(run, during=during) for during in (True, False))
    return math.nan if math.isnan(own + own_after) else during / after


def others_ahead(run: MeasuredRun) -> float:
    """The others' speed during the fault, as a multiple of the slowed worker's."""
    own, others = _speeds(run, during=True)
    return others / own


# The effect of stale gradients on the loss: a run by one worker, whose gradients are never stale,
# and a run by several workers, with the same seed and number of updates.

LOSS: Final = "test loss"


def stale_harm(run: MeasuredRun, alone: MeasuredRun) -> float | None:
    """The loss with stale gradients, as a multiple of the loss without them."""
    # Less than half of the largest mean staleness is no test of stale gradients.
    if (run.summary.mean_staleness or 0) < (len(run.workers) - 1) / 2:
        return None
    mine, other = (
        next((r.value for r in each.summary.results if r.name == LOSS and r.value), 0.0)
        for each in (run, alone)
    )
    return mine / other if 0 < mine < math.inf and 0 < other < math.inf else None


def stale_cure(
    run: MeasuredRun, alone: MeasuredRun, plain: MeasuredRun, plain_alone: MeasuredRun
) -> float | None:
    """The harm without a remedy, as a multiple of the harm with it."""
    mine, other = stale_harm(run, alone), stale_harm(plain, plain_alone)
    return None if mine is None or other is None else other / mine


def trainings(mode: str, variant: str = "") -> list[dict[str, Any]]:
    """The trainings of a mode and a variant, one for each batch order."""
    every = json.loads((DATA / "reference.json").read_text(encoding="utf-8"))["trainings"]
    return [each for each in every if (each["mode"], each["variant"]) == (mode, variant)]


def reference(mode: str) -> pd.DataFrame:
    """The final accuracies of a mode, `async` or `sync`: a row a batch order, a column a seed."""
    of_mode = trainings(mode)
    return pd.DataFrame([each["accuracy"] for each in of_mode], columns=of_mode[0]["seeds"])
