"""The measured quantities that claims are about: one value of each run."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from lab.reproduce.claims import DATA, Claim
from lab.reproduce.metrics import RunMetrics, Step, WorkerMetrics

Runs = Mapping[str, Mapping[int, RunMetrics]]
"""The runs that claims may use: role to seed to run."""

LEAST_RECORDS: Final = 30
"""A share of fewer records says little."""


def values(claim: Claim, runs: Runs) -> dict[int, float | None]:
    """The value of each run of the claim's role, by seed; None: the run does not have it."""
    measure = _MEASURES.get(claim.measure, _in_table)
    return {seed: measure(claim, run, runs) for seed, run in runs[claim.role].items()}


def _in_table(claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """A measure of `lab.store.measures`, of the run or of the worker that the claim names."""
    value = getattr(_worker(claim, run) if "worker" in claim.keys else run, claim.measure)
    return None if value is None else float(value)


def _worker(claim: Claim, run: RunMetrics) -> WorkerMetrics:
    index = claim.keys["worker"]
    return run.workers[index] if index < len(run.workers) else WorkerMetrics(())


# Settings and checks.


def _flag(claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    value = run.parameters.get(claim.keys["name"])
    return float(value) if isinstance(value, int | float) else None


def _learning_rate(claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """The rate of all workers, or one that differs from the claim; None: a worker reports none."""
    rates = {worker.rate for worker in run.workers}
    return None if None in rates else next((r for r in rates if r != claim.value), claim.value)


def _beyond_reference(claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """The final accuracy minus that of the NumPy reference from the same initial weights."""
    known = reference(claim.keys["mode"])
    if run.seed not in known or run.accuracy is None:
        return None
    return run.accuracy - float(known[run.seed].mean())


# Printed numbers.


def _global_step_at(claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """The global step after a number of a worker's own steps."""
    local = claim.keys["local_step"]
    return next((float(s.total) for s in _worker(claim, run).steps if s.local == local), None)


def _accuracy_at_end(_claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """The final test accuracy of the worker that ended last."""
    if not all(worker.steps for worker in run.workers):
        return None
    return max(run.workers, key=lambda worker: worker.steps[-1].total).test_accuracy


def _losses_near(claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """The geometric mean of the losses that were recorded nearest to some global steps."""
    steps = sorted((s for worker in run.workers for s in worker.steps), key=lambda s: s.total)
    wanted = claim.keys["steps"]
    if not steps or steps[-1].total < max(wanted):
        return None
    found = [min(steps, key=lambda s: abs(s.total - each)).loss for each in wanted]
    return float(np.exp(np.mean(np.log(found)))) if min(found) > 0 else math.nan


def _pace(_claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """Global steps for each of worker 0's own steps, while all workers train."""
    steps = next(overlapping_steps(run), [])
    if len(steps) < LEAST_RECORDS or steps[-1].local <= steps[0].local:
        return None
    return (steps[-1].total - steps[0].total) / (steps[-1].local - steps[0].local)


# Statements without a number.


def overlapping_steps(run: RunMetrics) -> Iterator[list[Step]]:
    """Yield each worker's records from the time in which all workers trained."""
    if not all(worker.steps for worker in run.workers):
        return
    begun = max(worker.steps[0].total for worker in run.workers)
    ended = min(worker.steps[-1].total for worker in run.workers)
    for worker in run.workers:
        yield [step for step in worker.steps if begun <= step.total <= ended]


def _accuracy_range(_claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """The highest minus the lowest final accuracy of a run's workers."""
    tested = [each.test_accuracy for each in run.workers if each.test_accuracy is not None]
    return round(max(tested) - min(tested), 6) if len(tested) == len(run.workers) else None


def _uneven_share(_claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """The share of stretches between records in which the global step grows unusually.

    The growth is taken for each own step. It is unusual if it is not the worker's most frequent.
    """
    odd, every = 0, 0
    for steps in overlapping_steps(run):
        growths = Counter(
            Fraction(after.total - before.total, after.local - before.local)
            for before, after in pairwise(steps)
            if after.local > before.local
        )
        odd += growths.total() - max(growths.values(), default=0)
        every += growths.total()
    return odd / every if every >= LEAST_RECORDS else None


def _remainder_share(_claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """The share of a worker's most frequent remainder of the global step; the largest of all.

    The remainder is by the number of workers. Workers that take turns always have the same one.
    """
    tables = [Counter(s.total % len(run.workers) for s in each) for each in overlapping_steps(run)]
    if min((table.total() for table in tables), default=0) < LEAST_RECORDS:
        return None
    return max(max(table.values()) / table.total() for table in tables)


def _steps_apart(_claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """The largest difference between a worker's own steps and the global step."""
    found = [abs(s.total - s.local) for worker in run.workers for s in worker.steps]
    return float(max(found)) if found else None


def _steadiness(claim: Claim, run: RunMetrics, runs: Runs) -> float | None:
    """The unsteadiness of the loss, relative to that of the run of role `against` with its seed."""
    other = runs[claim.keys["against"]].get(run.seed or 0)
    mine, theirs = _unsteadiness(run), None if other is None else _unsteadiness(other)
    return mine / theirs if mine is not None and theirs else None


def _unsteadiness(run: RunMetrics) -> float | None:
    """The standard deviation of the logarithms of ratios of neighbouring losses of one worker.

    Neighbours remove the trend, logarithms the size of the loss. Only single workers' losses are
    compared: the mean of several batches is steadier than one batch in any training. The second
    half of the training counts.
    """
    found: list[float] = []
    for worker in run.workers:
        losses = [s.loss for s in worker.steps if 0 < s.loss < math.inf]
        late = losses[len(losses) // 2 :]
        found += [math.log(b / a) for a, b in zip(late[::2], late[1::2], strict=False)]
    return float(np.std(found)) if len(found) >= LEAST_RECORDS else None


# The speed of the workers while one of them is slowed: only records within the fault's window.


def _speeds(run: RunMetrics, *, during: bool) -> tuple[float, float] | None:
    """Own steps per second of the slowed worker, and the mean of the others, while all train.

    Args:
        run: The run.
        during: Whether while the fault lasts, or after it.
    """
    slowed = next((worker for worker in run.workers if worker.slowed is not None), None)
    if slowed is None or slowed.slowed is None or not all(each.steps for each in run.workers):
        return None
    begin, end = slowed.slowed if during else (slowed.slowed[1], math.inf)
    begin = max([begin, *(worker.steps[0].time_s for worker in run.workers)])
    end = min([end, *(worker.steps[-1].time_s for worker in run.workers)])
    speeds = [_speed(worker, begin, end) for worker in run.workers]
    own = speeds.pop(run.workers.index(slowed))
    known = [speed for speed in speeds if speed]
    return (own, float(np.mean(known))) if own and len(known) == len(speeds) else None


def _speed(worker: WorkerMetrics, begin: float, end: float) -> float | None:
    """A worker's own steps per second between two times; None: it has fewer than three records."""
    within = [step for step in worker.steps if begin <= step.time_s <= end]
    if len(within) < 3 or within[-1].time_s <= within[0].time_s:  # noqa: PLR2004
        return None
    return (within[-1].local - within[0].local) / (within[-1].time_s - within[0].time_s)


def _others_slowed(_claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """The others' speed during the fault, as a share of their speed after it."""
    during, after = _speeds(run, during=True), _speeds(run, during=False)
    return during[1] / after[1] if during and after else None


def _others_ahead(_claim: Claim, run: RunMetrics, _runs: Runs) -> float | None:
    """The others' speed during the fault, as a multiple of the slowed worker's."""
    during = _speeds(run, during=True)
    return during[1] / during[0] if during else None


# The effect of stale gradients on the loss: a run by one worker, whose gradients are never stale,
# and a run by several workers, with the same seed and number of updates.

LOSS: Final = "test loss"


def _stale_harm(claim: Claim, run: RunMetrics, runs: Runs) -> float | None:
    """The loss with stale gradients, as a multiple of the loss without them."""
    alone = runs[claim.keys["alone"]].get(run.seed or 0)
    # Less than half of the largest mean staleness is no test of stale gradients.
    if alone is None or (run.mean_staleness or 0) < (len(run.workers) - 1) / 2:
        return None
    mine, other = (each.results.get(LOSS, math.nan) for each in (run, alone))
    return mine / other if 0 < mine < math.inf and 0 < other < math.inf else None


def _stale_cure(claim: Claim, run: RunMetrics, runs: Runs) -> float | None:
    """The harm in the run of role `plain` with the same seed, as a multiple of the harm here."""
    plain = runs[claim.keys["plain"]].get(run.seed or 0)
    mine = _stale_harm(claim, run, runs)
    if plain is None or mine is None:
        return None
    other = _stale_harm(
        claim, plain, {**runs, claim.keys["alone"]: runs[claim.keys["plain_alone"]]}
    )
    return None if other is None else other / mine


_MEASURES: Final[Mapping[str, Callable[[Claim, RunMetrics, Runs], float | None]]] = {
    "flag": _flag,
    "learning_rate": _learning_rate,
    "local_total": lambda _claim, run, _runs: float(sum(w.local_step for w in run.workers)),
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
