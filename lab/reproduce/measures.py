"""What is measured of runs for each claim: a value of each run, or a test over all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from lab.reproduce import statistics
from lab.reproduce.claims import Claim
from lab.reproduce.figures import RunFigures, Step, WorkerFigures

LATE_EPOCH: Final = 40
"""From this epoch on a worker's losses count as late, as for the oracle."""

Runs = Mapping[str, Sequence[RunFigures]]
"""Role to its runs that have succeeded."""


@dataclass(frozen=True, slots=True)
class Test:
    """What a test over runs came to.

    Attributes:
        passed: Whether the claim holds; None: too few runs, or records, to say so.
        why: The statistic, the test and its p, in a line.
    """

    passed: bool | None
    why: str


def value(claim: Claim, run: RunFigures) -> float | None:
    """What a run has of a claim with a number; None where it does not tell."""
    return _VALUES[claim.measure](claim, run)


def test(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """A statistic of each run for a claim in words, and whether it holds."""
    return _TESTS[claim.measure](claim, runs)


def _worker(claim: Claim, run: RunFigures) -> WorkerFigures:
    index = claim.keys["worker"]
    return run.workers[index] if index < len(run.workers) else WorkerFigures(())


def _hyperparameter(claim: Claim, run: RunFigures) -> float | None:
    given = run.parameters.get(claim.keys["name"], claim.keys.get("default"))
    return float(given) if isinstance(given, int | float) else None


def _global_step_at(claim: Claim, run: RunFigures) -> float | None:
    found = _worker(claim, run).at_end_of(claim.keys["epoch"])
    return None if found is None else float(found.total)


def _global_step_at_local(claim: Claim, run: RunFigures) -> float | None:
    steps = _worker(claim, run).steps
    return next((float(s.total) for s in steps if s.local == claim.keys["local_step"]), None)


def _loss_at(claim: Claim, run: RunFigures) -> float | None:
    found = _worker(claim, run).at_end_of(claim.keys["epoch"])
    return None if found is None else found.loss


def _late_loss(_claim: Claim, run: RunFigures) -> float | None:
    losses = [s.loss for worker in run.workers for s in worker.steps if s.epoch >= LATE_EPOCH]
    return float(np.mean(losses)) if losses else None


def _local_in_step(_claim: Claim, run: RunFigures) -> float | None:
    """How far apart local counts are at the end of the same epoch, at most."""
    ends = [{s.epoch: s.local for s in worker.steps if s.ends_epoch} for worker in run.workers]
    shared = set.intersection(*map(set, ends)) if ends else set()
    if not shared:
        return None
    return float(max(max(e[epoch] for e in ends) - min(e[epoch] for e in ends) for epoch in shared))


def joined_at(run: RunFigures, worker: int) -> int | None:
    """Updates that the others had made when this worker recorded a step first."""
    steps = run.workers[worker].steps if worker < len(run.workers) else ()
    return steps[0].total - steps[0].local if steps else None


def _overlap(claim: Claim, run: RunFigures) -> float | None:
    """Updates that the others made after a late worker's first record."""
    late = [int(task.rpartition("-")[2]) for task in run.start]
    begun = joined_at(run, late[0]) if late else None
    if begun is None:
        return None
    others = sum(w.local_steps for index, w in enumerate(run.workers) if index != late[0])
    return float(max(others - begun, 0))


_VALUES: Final[Mapping[str, Callable[[Claim, RunFigures], float | None]]] = {
    "hyperparameter": _hyperparameter,
    "global_steps": lambda _claim, run: float(run.global_steps),
    "local_steps": lambda claim, run: float(_worker(claim, run).local_steps),
    "updates_lost": lambda _claim, run: None if run.updates_lost is None else run.updates_lost,
    "accuracy": lambda claim, run: _worker(claim, run).accuracy,
    "global_step_at": _global_step_at,
    "local_total": lambda _claim, run: float(sum(w.local_steps for w in run.workers)),
    "global_step_at_local": _global_step_at_local,
    "loss_at": _loss_at,
    "late_loss": _late_loss,
    "local_in_step": _local_in_step,
    "late_overlap": _overlap,
}


def together(run: RunFigures) -> Iterator[list[Step]]:
    """Each worker's records of the time in which all workers trained."""
    if not all(worker.steps for worker in run.workers):
        return
    begun = max(worker.steps[0].total for worker in run.workers)
    ended = min(worker.steps[-1].total for worker in run.workers)
    for worker in run.workers:
        yield [step for step in worker.steps if begun <= step.total <= ended]


def _pace(run: RunFigures) -> list[float]:
    """Global steps per local step from record to record, about each worker's median."""
    found: list[float] = []
    for steps in together(run):
        ratios = [
            (after.total - before.total) / (after.local - before.local)
            for before, after in pairwise(steps)
            if after.local > before.local
        ]
        found += [ratio - float(np.median(ratios)) for ratio in ratios]
    return found


def _global_varies(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """Global steps per local step vary, where local ones come one by one."""
    paces = [_pace(run) for run in runs[claim.role]]
    every = [ratio for pace in paces for ratio in pace]
    if not every:
        return [], Test(None, "no run has records of a time in which all workers train")
    p = statistics.differs_in_spread(every, [0.0] * len(every))
    why = f"Brown-Forsythe, {len(every):,} stretches: p {shown(p)}, has to be < 0.001"
    return [float(np.std(pace)) for pace in paces], Test(p < statistics.LEVEL, why)


def _global_pattern(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """Workers that take turns see the same remainder of the global step for ever."""
    tables, largest = [], []
    for run in runs[claim.role]:
        several = [
            np.bincount([s.total % len(run.workers) for s in steps], minlength=len(run.workers))
            for steps in together(run)
        ]
        tables += several
        largest += [max(float(t.max() / t.sum()) for t in several if t.sum())] if several else []
    if not largest:
        return [], Test(None, "no run has records of a time in which all workers train")
    p = statistics.uniform([table.tolist() for table in tables])
    why = f"Pearson, remainders by {len(tables[0])}: p {shown(p)}, has to be > 0.001"
    return largest, Test(p > statistics.LEVEL, why)


def _last_tests_best(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """The accuracy of the worker that ends last, less that of the one that ends first."""
    gains = []
    for run in runs[claim.role]:
        tests = [
            (worker.tested_at, worker.accuracy)
            for worker in run.workers
            if worker.tested_at is not None and worker.accuracy is not None
        ]
        if len(tests) > 1:
            gains.append(max(tests)[1] - min(tests)[1])
    if len(gains) < statistics.LEAST_RUNS:
        return gains, Test(None, f"{len(gains)} runs, and the test needs {statistics.LEAST_RUNS}")
    p = statistics.above_zero(gains)
    return gains, Test(p < statistics.FEW_LEVEL, f"Student's t: p {shown(p)}, has to be < 0.05")


def _long_overlap(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """Updates that the others make after a late starter has come, in a long training."""
    found = [overlap for run in runs[claim.role] if (overlap := _overlap(claim, run)) is not None]
    if not found:
        return [], Test(None, "no run has a worker that starts later")
    return found, Test(min(found) > 0, "in every run the others go on after it has come")


def _same_losses(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """The losses recorded in a stretch of global steps, against those that are printed of it."""
    within = range(claim.keys["since"], claim.keys["until"] + 1)
    several = [
        [s.loss for worker in run.workers for s in worker.steps if s.total in within]
        for run in runs[claim.role]
    ]
    every = [loss for losses in several for loss in losses]
    if not every:
        return [], Test(None, "no run has recorded a loss there")
    p = statistics.differ(claim.keys["printed"], every)
    why = f"Mann-Whitney, {len(every)} losses: p {shown(p)}, has to be > 0.001"
    return [float(np.mean(x)) for x in several if x], Test(p > statistics.LEVEL, why)


def _in_step(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """How far a worker's own count is from the global one, at most: a round, synchronously."""
    found = [
        float(max((abs(s.total - s.local) for w in run.workers for s in w.steps), default=0))
        for run in runs[claim.role]
    ]
    most = max(len(run.workers) for run in runs[claim.role])
    return found, Test(
        max(found) <= most, f"local and global step differ by {max(found):g} at most"
    )


def losses_of_updates(run: RunFigures) -> list[float]:
    """The recorded losses by update: the mean of those workers that have recorded the same one."""
    found: dict[int, list[float]] = {}
    for worker in run.workers:
        for step in worker.steps:
            found.setdefault(step.total, []).append(step.loss)
    return [float(np.mean(found[total])) for total in sorted(found)]


def _unsteadiness(run: RunFigures) -> list[float]:
    """Logarithms of the ratio of neighbouring losses in a training's second half.

    Of neighbours, so that the loss's way down does not count; of pairs that share none, so that
    the ratios are independent; by logarithms, so that a higher loss does not count as a wilder one.
    """
    losses = [loss for loss in losses_of_updates(run) if loss > 0]
    late = losses[len(losses) // 2 :]
    return [math.log(after / before) for before, after in zip(late[::2], late[1::2], strict=False)]


def _steadier(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """The spread of the loss, as a share of the asynchronous one's."""
    others = [ratio for run in runs.get("async", ()) for ratio in _unsteadiness(run)]
    several = [_unsteadiness(run) for run in runs[claim.role]]
    every = [ratio for ratios in several for ratio in ratios]
    if not others or not every:
        return [], Test(None, "no asynchronous run to compare with")
    p = statistics.differs_in_spread(every, others)
    reference = float(np.std(others))
    shares = [float(np.std(ratios)) / reference for ratios in several if ratios]
    why = (
        f"Brown-Forsythe, {len(every):,} and {len(others):,} pairs: p {shown(p)}, has to be < 0.001"
    )
    return shares, Test(p < statistics.LEVEL and float(np.std(every)) < reference, why)


def _slowed_worker(run: RunFigures) -> int | None:
    """The index of the worker that a fault slows; None where it names no single one."""
    tasks = [f"worker-{index}" for index in range(len(run.workers))]
    slowed = [fault.split()[1] for fault in run.faults if len(fault.split()) > 1]
    return next((tasks.index(task) for task in slowed if task in tasks), None)


def _paces(run: RunFigures) -> tuple[list[float], list[float]]:
    """Local steps a second of the worker that is slowed, and of the others together, by epoch."""
    slowed = _slowed_worker(run)
    by_worker = [
        {s.epoch: s.time_s for s in worker.steps if s.ends_epoch} for worker in run.workers
    ]
    shared = sorted(set.intersection(*map(set, by_worker))) if slowed is not None else []
    mine, theirs = [], []
    for before, after in pairwise(shared):
        taken = [ends[after] - ends[before] for ends in by_worker]
        if min(taken) > 0:
            mine.append(1 / taken[slowed or 0])
            theirs.append(float(np.mean([1 / t for i, t in enumerate(taken) if i != slowed])))
    return mine, theirs


_SAME_PACE: Final = 1.1
_AHEAD: Final = 1.5


def _pace_ratios(claim: Claim, runs: Runs) -> tuple[list[float], list[float], list[float]]:
    mine, theirs, ratios = [], [], []
    for run in runs[claim.role]:
        own, others = _paces(run)
        if own:
            mine, theirs = mine + own, theirs + others
            ratios.append(float(np.median(np.array(others) / np.array(own))))
    return mine, theirs, ratios


def _slowest_sets_pace(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """The others' pace as a multiple of the slowed worker's; in step it is 1, to a tenth."""
    mine, theirs, ratios = _pace_ratios(claim, runs)
    if len(mine) < _LEAST_EPOCHS:
        return ratios, Test(None, f"{len(mine)} epochs, and the test needs {_LEAST_EPOCHS}")
    p = max(
        statistics.larger(theirs, mine, 1 / _SAME_PACE),
        statistics.larger(mine, theirs, 1 / _SAME_PACE),
    )
    why = f"Wilcoxon, both ways, {len(mine)} epochs within 10%: p {shown(p)}, has to be < 0.01"
    return ratios, Test(p < _PACE_LEVEL, why)


def _others_run_ahead(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """The same asynchronously: they are faster by half at least."""
    mine, theirs, ratios = _pace_ratios(claim, runs)
    if len(mine) < _LEAST_EPOCHS:
        return ratios, Test(None, f"{len(mine)} epochs, and the test needs {_LEAST_EPOCHS}")
    p = statistics.larger(theirs, mine, _AHEAD)
    why = f"Wilcoxon, {len(mine)} epochs over 1.5 times: p {shown(p)}, has to be < 0.01"
    return ratios, Test(p < _PACE_LEVEL, why)


_PACE_LEVEL: Final = 0.01
_LEAST_EPOCHS: Final = 8
"""Of fewer pairs Wilcoxon's p cannot be below the level by a margin."""


def shown(p: float) -> str:
    """A p-value."""
    return f"{p:.4f}" if p >= 0.0001 else "< 0.0001"  # noqa: PLR2004


_TESTS: Final[Mapping[str, Callable[[Claim, Runs], tuple[list[float], Test]]]] = {
    "global_varies": _global_varies,
    "global_pattern": _global_pattern,
    "last_tests_best": _last_tests_best,
    "long_overlap": _long_overlap,
    "same_losses": _same_losses,
    "in_step": _in_step,
    "steadier": _steadier,
    "slowest_sets_pace": _slowest_sets_pace,
    "others_run_ahead": _others_run_ahead,
}
