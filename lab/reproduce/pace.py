"""Who sets the pace where one worker is slowed: the two claims about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from lab.reproduce import statistics
from lab.reproduce.claims import Claim
from lab.reproduce.figures import RunFigures
from lab.reproduce.testing import Runs, Test, shown
from lab.task.faults import Kind

_SAME: Final = 1.1
"""In step: no faster and no slower than by a tenth."""

_AHEAD: Final = 1.5
"""Ahead: faster by half at least."""

_LEVEL: Final = 0.01
_LEAST_EPOCHS: Final = 8
"""Of fewer pairs Wilcoxon's p cannot be below the level by a margin."""


def _slowed_worker(run: RunFigures) -> int | None:
    """The index of the worker that was slowed, as its records tell; None: none was."""
    return next(
        (
            index
            for index, worker in enumerate(run.workers)
            if any(fault.startswith(Kind.SLOW) for fault in worker.disturbed)
        ),
        None,
    )


def _paces(run: RunFigures) -> tuple[list[float], list[float]]:
    """Local steps a second of the worker that is slowed, and of the others together, by epoch."""
    slowed = _slowed_worker(run)
    by_worker = [
        {s.epoch: s.time_s for s in worker.steps if s.ends_epoch} for worker in run.workers
    ]
    shared = sorted(set.intersection(*map(set, by_worker))) if slowed is not None else []
    mine: list[float] = []
    theirs: list[float] = []
    for before, after in pairwise(shared):
        taken = [ends[after] - ends[before] for ends in by_worker]
        if min(taken) > 0:
            mine.append(1 / taken[slowed or 0])
            theirs.append(float(np.mean([1 / t for i, t in enumerate(taken) if i != slowed])))
    return mine, theirs


def slowest_sets_pace(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """The others' pace as a multiple of the slowed worker's; in step it is 1, to a tenth."""
    return _judged(
        [_paces(run) for run in runs[claim.role]],
        lambda mine, theirs: max(
            statistics.larger(theirs, mine, 1 / _SAME), statistics.larger(mine, theirs, 1 / _SAME)
        ),
        "both ways, within 10%",
    )


def others_run_ahead(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """The same asynchronously: they are faster by half at least."""
    return _judged(
        [_paces(run) for run in runs[claim.role]],
        lambda mine, theirs: statistics.larger(theirs, mine, _AHEAD),
        "over 1.5 times",
    )


def _judged(
    several: Sequence[tuple[list[float], list[float]]],
    p_of: Callable[[list[float], list[float]], float],
    what: str,
) -> tuple[list[float], Test]:
    """Each run's median ratio, and the test; the run with the highest p decides."""
    ratios = [float(np.median(np.divide(theirs, mine))) for mine, theirs in several if mine]
    fewest = min(len(mine) for mine, _ in several)
    if fewest < _LEAST_EPOCHS:
        why = f"{fewest} epochs beside a worker that was slowed, and the test needs {_LEAST_EPOCHS}"
        return ratios, Test(None, why)
    p = max(p_of(mine, theirs) for mine, theirs in several)
    epochs = sum(len(mine) for mine, _ in several)
    return ratios, Test(
        p < _LEVEL, f"Wilcoxon, {what}, {epochs} epochs: p {shown(p)} at most, must be < 0.01"
    )
