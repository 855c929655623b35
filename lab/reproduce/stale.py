"""What stale gradients do to a loss, and what reduces it: claims about pairs of runs.

A pair is one run by a single worker, whose gradients are never stale, and one by several workers.
Both have the same seed and make the same number of updates. The harm is the logarithm of the ratio
of their test losses. Logarithms make the harm comparable where the losses themselves differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from lab.reproduce import statistics
from lab.reproduce.claims import Claim
from lab.reproduce.figures import RunFigures
from lab.reproduce.numbers import LEAST_RUNS
from lab.reproduce.testing import Runs, Test, shown

LOSS: Final = "test loss"
STALENESS: Final = "staleness"


def harm(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """The loss with stale gradients as a multiple of the loss without, a pair."""
    harms = _harms(claim.keys["pair"], runs)
    return _above_zero([harms[seed] for seed in sorted(harms)], runs)


def cure(claim: Claim, runs: Runs) -> tuple[list[float], Test]:
    """How many times less the loss rises where the pair has a smaller rate, or batch."""
    plain, cured = _harms(claim.keys["pair"], runs), _harms(claim.keys["cured"], runs)
    return _above_zero([plain[s] - cured[s] for s in sorted(plain.keys() & cured.keys())], runs)


def _harms(pair: Sequence[str], runs: Runs) -> dict[int, float]:
    """Seed to the harm of its pair, where both runs of the pair have a loss."""
    alone, several = (_losses(runs.get(role, ())) for role in pair)
    seeds = alone.keys() & several.keys()
    return {seed: math.log(several[seed] / alone[seed]) for seed in seeds}


def _losses(runs: Sequence[RunFigures]) -> dict[int, float]:
    found = {run.seed: run.results.get(LOSS, math.nan) for run in runs}
    return {seed: loss for seed, loss in found.items() if seed is not None and 0 < loss < math.inf}


def _above_zero(logs: Sequence[float], runs: Runs) -> tuple[list[float], Test]:
    """Whether the mean of logarithms is above 0; the values are shown as factors."""
    factors = [float(each) for each in np.exp(logs)]
    fresh = _fresh(runs)
    if fresh is not None:
        return factors, Test(None, f"the gradients of run {fresh.run_id} were not stale")
    if len(logs) < LEAST_RUNS:
        pairs = "1 pair" if len(logs) == 1 else f"{len(logs)} pairs"
        return factors, Test(None, f"{pairs} of runs with the same seed, of {LEAST_RUNS} needed")
    p = statistics.above_zero(logs)
    why = f"Student's t, {len(logs)} seeds: p {shown(p)}, must be < {statistics.FEW_LEVEL}"
    return factors, Test(p < statistics.FEW_LEVEL, why)


def _fresh(runs: Runs) -> RunFigures | None:
    """A run of several workers whose gradients were less than half as old as they can be."""
    return next(
        (
            run
            for several in runs.values()
            for run in several
            if run.results.get(STALENESS, 0) < (len(run.workers) - 1) / 2
        ),
        None,
    )
