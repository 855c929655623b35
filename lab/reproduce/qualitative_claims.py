"""The claims without a number: a statistic of each run, and a test over all runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np

from lab.formatting import LEAST_RUNS, counted, p_value
from lab.reproduce import statistics
from lab.reproduce.claims import Claim
from lab.reproduce.measures import overlap
from lab.reproduce.run_metrics import RunMetrics, Step
from lab.task.protocol.faults import Kind

Runs = Mapping[str, Sequence[RunMetrics]]
"""The succeeded runs of each role."""


@dataclass(frozen=True, slots=True)
class TestResult:
    """The result of a test over runs.

    Attributes:
        passed: Whether the claim holds; None: too few runs or records to decide.
        why: The test and its p, or the reason, in a line.
    """

    passed: bool | None
    why: str


def test(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """Compute a statistic of each run for a claim, and whether the claim holds."""
    return _TESTS[claim.measure](claim, runs)


def overlapping_steps(run: RunMetrics) -> Iterator[list[Step]]:
    """Yield each worker's records from the time in which all workers trained."""
    if not all(worker.steps for worker in run.workers):
        return
    begun = max(worker.steps[0].total for worker in run.workers)
    ended = min(worker.steps[-1].total for worker in run.workers)
    for worker in run.workers:
        yield [step for step in worker.steps if begun <= step.total <= ended]


def _odd_stretches(run: RunMetrics) -> tuple[int, int]:
    """Count stretches between two records with an unusual growth of the global step.

    The growth is taken per local step. It is unusual if it differs from the worker's most frequent
    growth.

    Returns:
        The number of unusual stretches, and the number of all stretches.
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
    return odd, every


_LEAST_RECORDS: Final = 30
"""With fewer records a test at level 0.001 has too little power."""


def _too_few(records: int) -> TestResult:
    return TestResult(
        None,
        f"a run has {counted(records, 'record')} while all workers train, the test needs"
        f" {_LEAST_RECORDS}",
    )


def _global_varies(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """For the same number of a worker's steps, the global step grows by different numbers.

    The run with the highest p decides, so that many good runs do not hide a bad one.
    """
    several = [_odd_stretches(run) for run in runs[claim.role]]
    fewest = min(every for _, every in several)
    if fewest < _LEAST_RECORDS:
        return [], _too_few(fewest)
    p = max(statistics.binomial_p(odd, every) for odd, every in several)
    why = f"binomial, more than half of the stretches: p {p_value(p)} at most, must be < 0.001"
    return [odd / every for odd, every in several], TestResult(p < statistics.LEVEL, why)


def _global_pattern(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """The remainders of the global step vary; workers that take turns always see the same one."""
    several = [_remainders(run) for run in runs[claim.role]]
    fewest = min(sum(map(sum, tables)) for tables in several)
    if fewest < _LEAST_RECORDS:
        return [], _too_few(fewest)
    p = statistics.chi2_p([table for tables in several for table in tables])
    largest = [max(max(table) / sum(table) for table in tables if any(table)) for tables in several]
    why = f"Pearson, remainders by {len(several[0])}: p {p_value(p)}, must be > 0.001"
    return largest, TestResult(p > statistics.LEVEL, why)


def _remainders(run: RunMetrics) -> list[list[int]]:
    """For each worker, the count of each remainder of the global step by the number of workers."""
    count = len(run.workers)
    tables = (Counter(step.total % count for step in steps) for steps in overlapping_steps(run))
    return [[table[remainder] for remainder in range(count)] for table in tables]


def _untested(run: RunMetrics) -> TestResult:
    return TestResult(None, f"a worker of run {run.run_id} has no final accuracy")


def _last_tests_best(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """The accuracy of the worker that ends last, minus the best accuracy of the others."""
    gains: list[float] = []
    for run in runs[claim.role]:
        tests = [(worker.tested_at, worker.accuracy) for worker in run.workers]
        known = [
            (at, accuracy) for at, accuracy in tests if at is not None and accuracy is not None
        ]
        if len(known) < len(tests):
            return gains, _untested(run)
        *others, last = sorted(known)
        gains.append(last[1] - max(accuracy for _, accuracy in others))
    if len(gains) < LEAST_RUNS:
        return gains, TestResult(None, f"{counted(len(gains), 'run')}, the test needs {LEAST_RUNS}")
    p = statistics.ttest_p(gains)
    return gains, TestResult(
        p < statistics.FEW_LEVEL, f"Student's t: p {p_value(p)}, must be < 0.05"
    )


def _accuracies_differ(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """The difference between the highest and the lowest final accuracy of a run."""
    ranges: list[float] = []
    for run in runs[claim.role]:
        tested = [worker.accuracy for worker in run.workers if worker.accuracy is not None]
        if len(tested) < len(run.workers):
            return ranges, _untested(run)
        ranges.append(max(tested) - min(tested))
    same = sum(each == 0 for each in ranges)
    why = (
        f"equal in {same} of {counted(len(ranges), 'run')}" if same else "they differ in every run"
    )
    return ranges, TestResult(not same, why)


def _long_overlap(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """The number of updates by others after a late worker has started, in a long training."""
    several = [(run.run_id, overlap(claim, run)) for run in runs[claim.role]]
    found = [updates for _, updates in several if updates is not None]
    if len(found) < len(several):
        lacking = next(name for name, updates in several if updates is None)
        return found, TestResult(None, f"the late worker of run {lacking} has recorded no step")
    return found, TestResult(
        min(found) > 0, f"updates by others: {min(found):g} at least, must be > 0"
    )


def _same_losses(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """Compare the losses recorded in a range of global steps with the printed losses.

    Each run is compared, and all runs together. The lowest p decides.
    """
    within = range(claim.keys["since"], claim.keys["until"] + 1)
    several = [
        [s.loss for worker in run.workers for s in worker.steps if s.total in within]
        for run in runs[claim.role]
    ]
    fewest = min(map(len, several))
    printed = claim.keys["printed"]
    if 2 / math.comb(fewest + len(printed), len(printed)) >= statistics.LEVEL:
        return [], TestResult(None, f"a run has too few losses in this range: {fewest}")
    every = [loss for losses in several for loss in losses]
    p = min(statistics.mannwhitney_p(printed, losses) for losses in [*several, every])
    why = f"Mann-Whitney, {len(every)} losses: p {p_value(p)} at least, must be > 0.001"
    return [float(np.mean(losses)) for losses in several], TestResult(p > statistics.LEVEL, why)


def _in_step(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """The largest difference between local and global step; at most 1 in synchronous training."""
    if not all(worker.steps for run in runs[claim.role] for worker in run.workers):
        return [], TestResult(None, "a worker has recorded no step")
    found = [
        float(max(abs(s.total - s.local) for w in run.workers for s in w.steps))
        for run in runs[claim.role]
    ]
    return found, TestResult(
        max(found) <= 1, f"local and global step differ by {max(found):g} at most"
    )


def losses_of_updates(run: RunMetrics) -> list[float]:
    """The recorded loss of each update, in order; the mean over the workers that recorded it."""
    found: dict[int, list[float]] = {}
    for worker in run.workers:
        for step in worker.steps:
            found.setdefault(step.total, []).append(step.loss)
    return [float(np.mean(found[total])) for total in sorted(found)]


def _unsteadiness(run: RunMetrics) -> list[float]:
    """The logarithms of the ratios of neighbouring losses in a training's second half.

    Neighbours remove the trend of the loss. The pairs share no loss, so that the ratios are
    independent. Logarithms make the ratio independent of the size of the loss.
    """
    losses = [loss for loss in losses_of_updates(run) if 0 < loss < math.inf]
    late = losses[len(losses) // 2 :]
    return [math.log(after / before) for before, after in zip(late[::2], late[1::2], strict=False)]


_LEAST_PAIRS: Final = 100
"""The least pairs of each kind. The mean of three losses has 0.58 times the spread of one. With 100
pairs the test nearly always detects that, with 30 pairs hardly ever."""


def _steadier(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """The spread of the loss, relative to the spread in asynchronous training.

    All runs together are tested at level 0.001, and each run at 0.05.
    """
    others = [ratio for run in runs.get("async", ()) for ratio in _unsteadiness(run)]
    several = [_unsteadiness(run) for run in runs[claim.role]]
    every = [ratio for ratios in several for ratio in ratios]
    if not others:
        return [], TestResult(None, "no asynchronous run to compare with")
    if min(len(every), len(others)) < _LEAST_PAIRS:
        why = f"{len(every)} and {len(others)} pairs, the test needs {_LEAST_PAIRS} of each"
        return [], TestResult(None, why)
    reference = float(np.std(others))
    if not reference:
        return [], TestResult(None, "the losses of asynchronous updates do not vary")
    if not all(several):
        return [], TestResult(None, "a run has recorded no losses")
    shares = [float(np.std(ratios)) / reference for ratios in several]
    p = statistics.brown_forsythe_p(every, others)
    worst = max(statistics.brown_forsythe_p(ratios, others) for ratios in several)
    why = (
        f"Brown-Forsythe, {len(every):,} and {len(others):,} pairs: p {p_value(p)},"
        f" must be < 0.001; single runs: p {p_value(worst)} at most, must be < 0.05"
    )
    holds = p < statistics.LEVEL and worst < statistics.FEW_LEVEL and max(shares) < 1
    return shares, TestResult(holds, why)


# The speed of the workers while one of them is slowed.

_SAME: Final = 1.1
"""In step: at most a tenth faster or slower."""

_AHEAD: Final = 1.5
"""Ahead: at least 1.5 times as fast."""

_PACE_LEVEL: Final = 0.01
_LEAST_EPOCHS: Final = 8
"""With fewer pairs Wilcoxon's p is not clearly below the level."""


def _slowed_worker(run: RunMetrics) -> int | None:
    """The index of the slowed worker, from the recorded faults; None: no worker was slowed."""
    return next(
        (
            index
            for index, worker in enumerate(run.workers)
            if any(fault.startswith(Kind.SLOW) for fault in worker.disturbed)
        ),
        None,
    )


def _paces(run: RunMetrics) -> tuple[list[float], list[float]]:
    """The speed in each epoch: of the slowed worker, and the mean of the others.

    Epochs per second; only epochs that all workers recorded.
    """
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


def _slowest_sets_pace(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """The others' speed, as a multiple of the slowed worker's; in step it is 1 within 10%."""
    return _paces_differ(
        [_paces(run) for run in runs[claim.role]],
        lambda mine, theirs: max(
            statistics.wilcoxon_p(theirs, mine, 1 / _SAME),
            statistics.wilcoxon_p(mine, theirs, 1 / _SAME),
        ),
        "both ways, within 10%",
    )


def _others_run_ahead(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """The same in asynchronous training: the others are at least 1.5 times as fast."""
    return _paces_differ(
        [_paces(run) for run in runs[claim.role]],
        lambda mine, theirs: statistics.wilcoxon_p(theirs, mine, _AHEAD),
        "over 1.5 times",
    )


def _paces_differ(
    several: Sequence[tuple[list[float], list[float]]],
    p_of: Callable[[list[float], list[float]], float],
    what: str,
) -> tuple[list[float], TestResult]:
    """The median ratio of speeds of each run, and the test; the run with the highest p decides."""
    ratios = [float(np.median(np.divide(theirs, mine))) for mine, theirs in several if mine]
    fewest = min(len(mine) for mine, _ in several)
    if fewest < _LEAST_EPOCHS:
        why = f"{counted(fewest, 'epoch')} beside a slowed worker, the test needs {_LEAST_EPOCHS}"
        return ratios, TestResult(None, why)
    p = max(p_of(mine, theirs) for mine, theirs in several)
    epochs = sum(len(mine) for mine, _ in several)
    return ratios, TestResult(
        p < _PACE_LEVEL,
        f"Wilcoxon, {what}, {epochs} epochs: p {p_value(p)} at most, must be < 0.01",
    )


# The effect of stale gradients on the loss, and what reduces it: claims about pairs of runs. A pair
# is a run by a single worker, whose gradients are never stale, and a run by several workers. Both
# have the same seed and number of updates. The harm is the logarithm of the ratio of their test
# losses. Logarithms make the harm comparable if the losses themselves differ.

LOSS: Final = "test loss"


def _stale_harm(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """The loss with stale gradients, as a multiple of the loss without them, for each pair."""
    harms = _harms(claim.keys["pair"], runs)
    return _above_zero([harms[seed] for seed in sorted(harms)], runs)


def _stale_cure(claim: Claim, runs: Runs) -> tuple[list[float], TestResult]:
    """The factor by which a smaller rate or batch reduces the rise of the loss."""
    plain, cured = _harms(claim.keys["pair"], runs), _harms(claim.keys["cured"], runs)
    return _above_zero([plain[s] - cured[s] for s in sorted(plain.keys() & cured.keys())], runs)


def _harms(pair: Sequence[str], runs: Runs) -> dict[int, float]:
    """The harm of each seed's pair, if both runs of the pair have a loss."""
    alone, several = (_losses(runs.get(role, ())) for role in pair)
    seeds = alone.keys() & several.keys()
    return {seed: math.log(several[seed] / alone[seed]) for seed in seeds}


def _losses(runs: Sequence[RunMetrics]) -> dict[int, float]:
    found = {run.seed: run.results.get(LOSS, math.nan) for run in runs}
    return {seed: loss for seed, loss in found.items() if seed is not None and 0 < loss < math.inf}


def _above_zero(logs: Sequence[float], runs: Runs) -> tuple[list[float], TestResult]:
    """Test whether the mean of logarithms is above 0; the values are returned as factors."""
    factors = [float(each) for each in np.exp(logs)]
    fresh = _fresh(runs)
    if fresh is not None:
        return factors, TestResult(None, f"the gradients of run {fresh.run_id} were not stale")
    if len(logs) < LEAST_RUNS:
        pairs = counted(len(logs), "pair")
        return factors, TestResult(
            None, f"{pairs} of runs with the same seed, the test needs {LEAST_RUNS}"
        )
    p = statistics.ttest_p(logs)
    why = f"Student's t, {len(logs)} seeds: p {p_value(p)}, must be < {statistics.FEW_LEVEL}"
    return factors, TestResult(p < statistics.FEW_LEVEL, why)


def _fresh(runs: Runs) -> RunMetrics | None:
    """A run of several workers with less than half of the largest mean staleness, or None."""
    return next(
        (
            run
            for several in runs.values()
            for run in several
            if (run.mean_staleness or 0) < (len(run.workers) - 1) / 2
        ),
        None,
    )


_TESTS: Final[Mapping[str, Callable[[Claim, Runs], tuple[list[float], TestResult]]]] = {
    "global_varies": _global_varies,
    "global_pattern": _global_pattern,
    "last_tests_best": _last_tests_best,
    "accuracies_differ": _accuracies_differ,
    "long_overlap": _long_overlap,
    "same_losses": _same_losses,
    "in_step": _in_step,
    "steadier": _steadier,
    "slowest_sets_pace": _slowest_sets_pace,
    "others_run_ahead": _others_run_ahead,
    "stale_harm": _stale_harm,
    "stale_cure": _stale_cure,
}
