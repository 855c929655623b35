"""The measured quantities that claims are about: one value of each run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

import numpy as np
import pandas as pd

from lab.experiments.faults import DONE, OVER, Kind
from lab.reproduce.claims import DATA, Claim
from lab.reproduce.runs import Chosen, MeasuredRun
from lab.store.measures import OF_RUN, OF_TASK

LEAST_RECORDS: Final = 30
"""A share of fewer records says little."""


def values(claim: Claim, runs: Chosen) -> dict[int, float | None]:
    """The value of each run of the claim's role, by seed; None: the run does not have it."""
    measure = _MEASURES.get(claim.measure) or partial(_in_table, name=claim.measure)

    def value(seed: int, run: MeasuredRun) -> float | None:
        beside = {name: runs[role].get(seed) for name, role in claim.beside.items()}
        return None if None in beside.values() else measure(run, **claim.keys, **beside)

    return {seed: value(seed, run) for seed, run in runs[claim.role].items()}


def _in_table(run: MeasuredRun, name: str, worker: int | None = None) -> float | None:
    """A measure of `lab.store.measures`, of the run or of a worker."""
    if worker is None:
        (value,) = (each.of(run.summary) for each in OF_RUN if each.name == name)
    else:
        measure = next(each for each in OF_TASK if each.name == name)
        value = next((measure.of(task) for task in run.workers[worker : worker + 1]), None)
    if value is None:  # steps that no worker recorded were not made
        return 0.0 if name in {"global_step", "local_step"} else None
    return float(value)


# Settings and checks.


def _flag(run: MeasuredRun, name: str) -> float | None:
    value = run.flags.get(name)
    return float(value) if isinstance(value, int | float) else None


def _learning_rate(run: MeasuredRun, wanted: float) -> float | None:
    """The worker's rate that differs most from the wanted one; None: a worker reports none."""
    rates = run.records.groupby("task", observed=True)["learning_rate"].last().dropna()
    return (
        max(rates, key=lambda rate: abs(rate - wanted)) if len(rates) == len(run.workers) else None
    )


def _local_total(run: MeasuredRun) -> float:
    """The steps of all workers."""
    return float(sum(worker.local_step or 0 for worker in run.workers))


def _beyond_reference(run: MeasuredRun, mode: str) -> float | None:
    """The final accuracy minus that of the NumPy reference from the same initial weights."""
    known, accuracy = reference(mode), run.summary.accuracy
    if run.info.seed not in known or accuracy is None:
        return None
    return accuracy - float(known[run.info.seed].mean())


# Printed numbers.


def _global_step_at(run: MeasuredRun, worker: int, local_step: int) -> float | None:
    """The global step after a number of a worker's own steps."""
    for steps in run.steps[worker : worker + 1]:
        for total in steps.loc[steps["local_step"] == local_step, "global_step"]:
            return float(total)
    return None


def _accuracy_at_end(run: MeasuredRun) -> float | None:
    """The final test accuracy of the worker that ended last."""
    if any(steps.empty for steps in run.steps):
        return None
    last = np.argmax([steps["global_step"].iloc[-1] for steps in run.steps])
    return run.workers[last].accuracy


def _losses_near(run: MeasuredRun, steps: list[int]) -> float | None:
    """The geometric mean of the losses that were recorded nearest to some global steps."""
    rows = pd.concat(run.steps).sort_values("global_step", kind="stable")
    if rows.empty or rows["global_step"].iloc[-1] < max(steps):
        return None
    nearest = [int((rows["global_step"] - step).abs().argmin()) for step in steps]
    losses = rows["loss"].iloc[nearest]
    return float(np.exp(np.mean(np.log(losses)))) if losses.min() > 0 else math.nan


def _pace(run: MeasuredRun) -> float | None:
    """Global steps for each of worker 0's own steps, while all workers train."""
    steps = next(iter(_overlapping(run)), pd.DataFrame())
    if len(steps) < LEAST_RECORDS:
        return None
    own, total = (
        steps[name].iloc[-1] - steps[name].iloc[0] for name in ("local_step", "global_step")
    )
    return float(total / own) if own > 0 else None


# Statements without a number.


def _overlapping(run: MeasuredRun) -> list[pd.DataFrame]:
    """Each worker's steps from the time in which all workers trained."""
    totals = [steps["global_step"] for steps in run.steps]
    if any(each.empty for each in totals):
        return []
    begun, ended = max(each.iloc[0] for each in totals), min(each.iloc[-1] for each in totals)
    return [steps[steps["global_step"].between(begun, ended)] for steps in run.steps]


def _accuracy_range(run: MeasuredRun) -> float | None:
    """The highest minus the lowest final accuracy of a run's workers."""
    tested = [worker.accuracy for worker in run.workers if worker.accuracy is not None]
    return round(max(tested) - min(tested), 6) if len(tested) == len(run.workers) else None


def _uneven_share(run: MeasuredRun) -> float | None:
    """The share of stretches between records in which the global step grows unusually.

    The growth is taken for each own step. It is unusual if it is not the worker's most frequent.
    """
    stretches = [steps[["local_step", "global_step"]].diff() for steps in _overlapping(run)]
    growths = [
        (each["global_step"] / each["local_step"])[each["local_step"] > 0].value_counts()
        for each in stretches
    ]
    every = sum(each.sum() for each in growths)
    usual = sum(each.max() for each in growths if not each.empty)
    return float((every - usual) / every) if every >= LEAST_RECORDS else None


def _remainder_share(run: MeasuredRun) -> float | None:
    """The share of a worker's most frequent remainder of the global step; the largest of all.

    The remainder is by the number of workers. Workers that take turns always have the same one.
    """
    remainders = [steps["global_step"] % len(run.workers) for steps in _overlapping(run)]
    if min(map(len, remainders), default=0) < LEAST_RECORDS:
        return None
    return float(max(each.value_counts(normalize=True).max() for each in remainders))


def _steps_apart(run: MeasuredRun) -> float | None:
    """The largest difference between a worker's own steps and the global step."""
    rows = pd.concat(run.steps)
    apart = (rows["global_step"] - rows["local_step"]).abs()
    return None if apart.empty else float(apart.max())


def _steadiness(run: MeasuredRun, against: MeasuredRun) -> float | None:
    """The unsteadiness of the loss, relative to that of another run with the same seed."""
    mine, theirs = _unsteadiness(run), _unsteadiness(against)
    return mine / theirs if mine is not None and theirs else None


def _unsteadiness(run: MeasuredRun) -> float | None:
    """The standard deviation of the logarithms of ratios of neighbouring losses of one worker.

    Neighbours remove the trend, logarithms the size of the loss. Only single workers' losses are
    compared: the mean of several batches is steadier than one batch in any training. The second
    half of the training counts.
    """
    ratios: list[float] = []
    for steps in run.steps:
        losses = steps["loss"][steps["loss"].between(0, math.inf, inclusive="neither")].tolist()
        late = losses[len(losses) // 2 :]
        ratios += [math.log(b / a) for a, b in zip(late[::2], late[1::2], strict=False)]
    return float(np.std(ratios)) if len(ratios) >= LEAST_RECORDS else None


# The speed of the workers while one of them is slowed: only records within the fault's window.


def _speeds(run: MeasuredRun, *, during: bool) -> tuple[float, float] | None:
    """Own steps per second of the slowed worker, and the mean of the others, while all train.

    Args:
        run: The run.
        during: Whether while the fault lasts, or after it.
    """
    moments = pd.concat(run.events(f"{moment}{Kind.SLOW}").tail(1) for moment in (DONE, OVER))
    times = moments["time_unix"].dropna().tolist()
    if len(times) < len((DONE, OVER)) or any(steps.empty for steps in run.steps):
        return None
    begin, end = times if during else (times[1], math.inf)
    begin = max(begin, *(steps["time_unix"].iloc[0] for steps in run.steps))
    end = min(end, *(steps["time_unix"].iloc[-1] for steps in run.steps))
    within = (steps[steps["time_unix"].between(begin, end)] for steps in run.steps)
    speeds = dict(zip([worker.task for worker in run.workers], map(_speed, within), strict=True))
    own = speeds.pop(moments["task"].iloc[0])
    return (own, float(np.mean([*speeds.values()]))) if own and all(speeds.values()) else None


def _speed(steps: pd.DataFrame) -> float:
    """A worker's own steps per second; 0: it has fewer than three records."""
    if len(steps) < 3:  # noqa: PLR2004
        return 0.0
    own, seconds = (
        steps[name].iloc[-1] - steps[name].iloc[0] for name in ("local_step", "time_unix")
    )
    return float(own / seconds) if seconds > 0 else 0.0


def _others_slowed(run: MeasuredRun) -> float | None:
    """The others' speed during the fault, as a share of their speed after it."""
    during, after = _speeds(run, during=True), _speeds(run, during=False)
    return during[1] / after[1] if during and after else None


def _others_ahead(run: MeasuredRun) -> float | None:
    """The others' speed during the fault, as a multiple of the slowed worker's."""
    during = _speeds(run, during=True)
    return during[1] / during[0] if during else None


# The effect of stale gradients on the loss: a run by one worker, whose gradients are never stale,
# and a run by several workers, with the same seed and number of updates.

LOSS: Final = "test loss"


def _stale_harm(run: MeasuredRun, alone: MeasuredRun) -> float | None:
    """The loss with stale gradients, as a multiple of the loss without them."""
    # Less than half of the largest mean staleness is no test of stale gradients.
    if (run.summary.mean_staleness or 0) < (len(run.workers) - 1) / 2:
        return None
    mine, other = (
        next((r.value for r in each.summary.results if r.name == LOSS and r.value), 0.0)
        for each in (run, alone)
    )
    return mine / other if 0 < mine < math.inf and 0 < other < math.inf else None


def _stale_cure(
    run: MeasuredRun, alone: MeasuredRun, plain: MeasuredRun, plain_alone: MeasuredRun
) -> float | None:
    """The harm without a remedy, as a multiple of the harm with it."""
    mine, other = _stale_harm(run, alone), _stale_harm(plain, plain_alone)
    return None if mine is None or other is None else other / mine


_MEASURES: Final[Mapping[str, Callable[..., float | None]]] = {
    "flag": _flag,
    "learning_rate": _learning_rate,
    "local_total": _local_total,
    "beyond_reference": _beyond_reference,
    "global_step_at": _global_step_at,
    "accuracy_at_end": _accuracy_at_end,
    "losses_near": _losses_near,
    "pace": _pace,
    "accuracy_range": _accuracy_range,
    "uneven_share": _uneven_share,
    "remainder_share": _remainder_share,
    "steps_apart": _steps_apart,
    "steadiness": _steadiness,
    "others_slowed": _others_slowed,
    "others_ahead": _others_ahead,
    "stale_harm": _stale_harm,
    "stale_cure": _stale_cure,
}


FILE: Final = DATA / "reference.json"


def trainings(mode: str, variant: str = "") -> list[dict[str, Any]]:
    """The trainings of a mode and a variant, one for each batch order."""
    return [t for t in _all_trainings() if (t["mode"], t["variant"]) == (mode, variant)]


def reference(mode: str) -> pd.DataFrame:
    """The final accuracies of a mode, `async` or `sync`: a row a batch order, a column a seed."""
    of_mode = trainings(mode)
    return pd.DataFrame([each["accuracy"] for each in of_mode], columns=of_mode[0]["seeds"])


@cache
def _all_trainings() -> list[dict[str, Any]]:
    trainings: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["trainings"]
    return trainings
