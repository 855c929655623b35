"""The limit of every rule of `lab reproduce`: just inside passes, just outside fails.

The limits here are numbers from tables of the distributions or by hand: not from the code that
is tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from lab.reproduce import measures, statistics
from lab.reproduce.claims import Claim, Source, load
from lab.reproduce.evaluate import ClaimResult, ClaimStatus, Observed, evaluate_claims
from lab.reproduce.reference import Reference
from lab.reproduce.run_metrics import RunMetrics, Step, WorkerMetrics
from lab.reproduce.statistics import Interval, Variance
from tests.unit.reproducing import bare_run

PASS, OUTSIDE, FEW = ClaimStatus.PASS, ClaimStatus.OUTSIDE_BAND, ClaimStatus.INSUFFICIENT_RUNS
Run = Callable[..., RunMetrics]


@cache
def source(name: str) -> Source:
    return load(name)


def judged(
    name: str, claim: str, role: Sequence[RunMetrics], **roles: Sequence[RunMetrics]
) -> ClaimResult:
    """The verdict on one claim, by runs that have its role."""
    whole = source(name)
    (asked,) = [each for each in whole.claims if each.id == claim]
    _, found = evaluate_claims(
        replace(whole, claims=(asked,)), {asked.role: role, **roles}, None
    )  # the first is about runs that failed
    return found


def worker(*steps: Step, **fields: Any) -> WorkerMetrics:
    return WorkerMetrics(steps, **fields)


def step(local: int = 1, total: int = 1, epoch: int = 0, loss: float = 1.0, **rest: Any) -> Step:
    return Step(local, total, epoch, rest.get("ends", True), loss, rest.get("time_s", 1.0))


# ---- Counts: every run must have exactly these.


@pytest.mark.parametrize(
    ("steps", "word", "why"),
    [
        ((82_500, 82_500, 82_500), PASS, "in every run"),
        ((82_499, 82_500, 82_500), OUTSIDE, "differs in 1 of 3 runs"),
        ((82_500, 82_500, 82_501), OUTSIDE, "differs in 1 of 3 runs"),
        ((82_499, 82_500, 82_501), OUTSIDE, "differs in 2 of 3 runs"),
    ],
)
def test_a_count_is_exact_in_every_run(steps: tuple[int, ...], word: ClaimStatus, why: str) -> None:
    found = judged("book-async", "global-steps", [bare_run(global_steps=each) for each in steps])
    assert (found.verdict, found.why) == (word, why)
    assert found.band == Interval(82_500, 82_500)


def test_a_count_has_no_tolerance_of_a_lost_update() -> None:
    def word(*lost: int) -> ClaimStatus:
        return judged(
            "book-async", "updates-lost", [bare_run(updates_lost=n) for n in lost]
        ).verdict

    assert word(0, 0, 0) is PASS
    assert word(0, 1, 0) is word(0, 0, -1) is OUTSIDE


# ---- Printed steps: the mean is within 2%. Of 10,896 that is 10,678.08 to 11,113.92.


@pytest.mark.parametrize(
    ("totals", "word"),
    [
        ((11_113, 11_114, 11_114), PASS),  # mean 11,113.67
        ((11_114, 11_114, 11_114), OUTSIDE),
        ((10_679, 10_678, 10_678), PASS),  # mean 10,678.33
        ((10_678, 10_678, 10_678), OUTSIDE),
        ((10_896, 10_896, 11_549), PASS),  # mean 11,113.67: one run 6% off is the limit
        ((10_896, 10_896, 11_550), OUTSIDE),
        ((10_896, 10_896), FEW),
    ],
)
def test_a_mean_within_two_per_cent(totals: tuple[int, ...], word: ClaimStatus) -> None:
    runs = [bare_run(worker(step(5_500, total, 9))) for total in totals]
    found = judged("book-async", "global-step.worker-0.epoch-9", runs)
    assert found.verdict is word
    assert found.band is not None
    assert (found.band.low, found.band.high) == pytest.approx((10_678.08, 11_113.92))


@pytest.mark.parametrize(("epochs", "comparable"), [(10, True), (9, False)])
def test_a_run_with_fewer_planned_epochs(epochs: int, *, comparable: bool) -> None:
    runs = [bare_run(worker(step(5_500, 10_896, 9)), parameters={"epochs": epochs})] * 3
    word = judged("book-async", "global-step.worker-0.epoch-9", runs).verdict
    assert word is (PASS if comparable else ClaimStatus.NOT_COMPARABLE)


@pytest.mark.parametrize(("steps", "comparable"), [(2_052, True), (2_051, False)])
def test_a_run_with_fewer_planned_steps(steps: int, *, comparable: bool) -> None:
    runs = [bare_run(*[worker(step(400, 2_052))] * 3, parameters={"global_steps": steps})] * 3
    word = judged("blog-async", "global-step.worker-2.step-400", runs).verdict
    assert word is (PASS if comparable else ClaimStatus.NOT_COMPARABLE)


# ---- Bands by the reference. The tables have four initial weights and three orders of batches: a
# value is 10 + r + c, with r of -3, -1, 1, 3 for the weights and c of -1, 0, 1 for the order. By
# hand: the variance between weights is 20/3 with 3 degrees of freedom, and within one 1 with 2.
# Student's t of 99.9%, two-sided: 31.599 with 2 degrees.

ROWS, COLUMNS = (-3, -1, 1, 3), (-1, 0, 1)
TWO_DEGREES = 31.599
UNKNOWN_ONE = 29.1107  # t 9.5288 of 3.6836 degrees, times √(20/3 · (1 + 1/4) + 1)
UNKNOWN_THREE = 20.9874  # t 10.2139 of 3.4978 degrees, times √(20/3 · (1/3 + 1/4) + 1/3)


def reference(mode: str = "async", *, deviation: float = 0.3) -> Reference:
    """Accuracies after 100 updates, losses' logarithms, and late losses about 10."""
    trainings = [
        {
            "mode": mode,
            "accuracy": {"100": [10 + row + column for row in ROWS]},
            "log_loss": {
                place: {"mean": [row + column for row in ROWS], "deviation": [deviation] * 4}
                for place in ("0.9", "0.49", "1.9")
            },
            "late_loss": [10 + row for row in ROWS],
        }
        for column in COLUMNS
    ]
    return Reference((1, 2, 3, 4), tuple(trainings))


@pytest.mark.parametrize(
    ("seeds", "middle", "half"),
    [
        ((4,), 13, TWO_DEGREES * math.sqrt(1 + 1 / 3)),
        ((2, 3, 4), 11, TWO_DEGREES * math.sqrt(1 / 3 + 1 / 3)),
        ((4, 4, 4), 13, TWO_DEGREES * math.sqrt(1 + 1 / 3)),  # the same run thrice is one
        ((9,), 10, UNKNOWN_ONE),
        ((9, 8, 7), 10, UNKNOWN_THREE),
        ((None, None, None), 10, UNKNOWN_THREE),
    ],
)
def test_the_width_of_our_band(seeds: tuple[int | None, ...], middle: float, half: float) -> None:
    band = reference().accuracy([100] * len(seeds), seeds, 100)
    assert band is not None
    assert (band.ours.low, band.ours.high) == pytest.approx(
        (middle - half, middle + half), rel=1e-4
    )
    # One further run of weights that are not known, whatever ours are.
    edges = (10 - UNKNOWN_ONE, 10 + UNKNOWN_ONE)
    assert (band.source.low, band.source.high) == pytest.approx(edges, rel=1e-4)


def test_the_width_of_a_loss_has_its_batchs_part() -> None:
    """Logarithms: within 1 of 2 degrees, a batch's 4 of 3 · 109; Satterthwaite's for the sum."""
    found = reference(deviation=2.0).losses(["0.9"], [4])
    assert found is not None
    # 1 · (1 + 1/3) + 4 = 16/3; (16/3)² / ((4/3)² / 2 + 4² / 327) = 30.33 degrees, of which t is
    # 3.6417.
    half = 3.6417 * math.sqrt(16 / 3)
    assert [math.log(found.ours.low), math.log(found.ours.high)] == pytest.approx(
        [3 - half, 3 + half], rel=1e-4
    )
    # 20/3 · 5/4 + 1 + 4 = 40/3; of (40/3)² / ((25/3)² / 3 + 1/2 + 16/327) = 7.504 degrees t is
    # 5.2070.
    half = 5.2070 * math.sqrt(40 / 3)
    assert [math.log(found.source.low), math.log(found.source.high)] == pytest.approx(
        [-half, half], rel=1e-4
    )


def test_the_mean_of_losses_has_a_part_of_each_batch() -> None:
    """Of three places a batch's variance counts a third: it is 4/9 for each, 4/3 together."""
    found = reference(deviation=2.0).losses(["0.9", "0.49", "1.9"], [4])
    assert found is not None
    # 1 · (1 + 1/3) + 4/3 = 8/3; (8/3)² / ((4/3)² / 2 + 3 · (4/9)² / 327) = 7.984 degrees, t 5.0463.
    half = 5.0463 * math.sqrt(8 / 3)
    assert [math.log(found.ours.low), math.log(found.ours.high)] == pytest.approx(
        [3 - half, 3 + half], rel=1e-4
    )


@pytest.mark.parametrize(("mode", "losses"), [("async", 150), ("sync", 50)])
def test_the_width_of_a_late_loss(mode: str, losses: int) -> None:
    """Variance mean² · (exp(s²) - 1) / n, of 3 · 109 degrees of freedom: t is 3.320527."""
    found = reference(mode).late_loss([4])
    variance = 10**2 * (math.exp(0.3**2) - 1) / losses
    half = 3.320527 * math.sqrt(variance * (1 + 1 / 3))
    assert (found.ours.low + found.ours.high) / 2 == pytest.approx(13)
    assert (found.ours.high - found.ours.low) / 2 == pytest.approx(half, rel=2e-5)


def by_reference(better: Any, ours: Sequence[float], printed: float | None = None) -> ClaimStatus:
    """The status of a claim with a band by the reference above; the runs have seeds 2, 3, 4."""
    return verdict_by_reference(better, ours, printed).verdict


def verdict_by_reference(
    better: Any, ours: Sequence[float], printed: float | None = None, tested_at: int = 100
) -> ClaimResult:
    """The verdict on the same claim, by runs that were tested after these updates."""
    claim = Claim(
        "accuracy", "accuracy", "independent", "book", "here", "accuracy", printed, "", "oracle",
        better, keys={"worker": 0, "updates": 100},
    )  # fmt: skip
    runs = [
        bare_run(worker(accuracy=value, tested_at=tested_at), seed=seed)
        for seed, value in zip((2, 3, 4), ours, strict=True)
    ]
    asked = replace(source("book-async"), claims=(claim,))
    _, found = evaluate_claims(asked, {"whole": runs}, reference())
    return found


HALF = 25.8005  # 31.599 · √(1/3 + 1/3), about 11


@pytest.mark.parametrize(
    ("better", "low", "high"),
    [
        ("high", OUTSIDE, ClaimStatus.TOO_GOOD),  # as of accuracies
        ("low", ClaimStatus.TOO_GOOD, OUTSIDE),  # as of losses
        ("", OUTSIDE, OUTSIDE),
    ],
)
def test_outside_our_band_one_side_is_too_good(
    better: str, low: ClaimStatus, high: ClaimStatus
) -> None:
    inside, outside = HALF - 0.01, HALF + 0.01
    assert by_reference(better, [11 + inside] * 3) is PASS
    assert by_reference(better, [11 - inside] * 3) is PASS
    assert by_reference(better, [11 + outside] * 3) is high
    assert by_reference(better, [11 - outside] * 3) is low
    # One bad run of three moves the mean by a third of its deviation.
    assert by_reference(better, [11, 11, 11 + 3 * outside]) is high
    assert by_reference(better, [11, 11, 11 - 3 * outside]) is low


@pytest.mark.parametrize("side", [1, -1])
def test_the_printed_value_has_a_band_of_its_own(side: int) -> None:
    """With the spread between initial weights, which are unknown for the source's run."""
    at = [10 + side * (UNKNOWN_ONE + off) for off in (-0.01, 0.01)]
    assert by_reference("high", [11] * 3, at[0]) is PASS
    assert by_reference("high", [11] * 3, at[1]) is OUTSIDE


def test_a_verdict_by_the_reference_names_its_reason() -> None:
    def why(*ours: float, printed: float | None = None) -> str:
        return verdict_by_reference("high", ours, printed).why

    far = 11 + HALF + 1
    assert why(11, 11, 11) == "within the reference's interval"
    assert why(far, far, far) == "better than this training can be"
    assert why(-far, -far, -far) == "outside the reference's interval"
    within = "a single run is within -19.1107 to 39.1107"
    assert why(11, 11, 11, printed=39) == within
    assert why(11, 11, 11, printed=40) == f"{within}, the printed value is not"


def test_without_a_reference_for_the_place_there_is_no_band() -> None:
    """Its first test was after 100 updates."""
    early = verdict_by_reference("high", [11] * 3, tested_at=99)
    runs = [bare_run(*[worker(accuracy=0.9, tested_at=100)] * 3)]
    without = judged("book-async", "accuracy.worker-2", runs)
    for found in (early, without):
        assert found.verdict is ClaimStatus.NOT_COMPARABLE
        assert found.why == "the reference lacks this value"
        assert found.band is None
    assert reference().losses(["0.9", "2.9"], [4]) is None


# The table's cells are r + c + i: r of -3, -1, 1, 3 for the weights, c of -2, 0, 2 for the order,
# and i the product of 1, -1, -1, 1 and 1, -2, 1. By hand: the rest's mean square is 24/6 = 4, the
# columns' 4 · 4 = 16, so that one row's variance is (16 + 3 · 4) / 4 = 7. Its degrees of freedom
# are 28² / (16²/2 + 12²/6) = 784/152.


def test_a_table_in_which_orders_differ_by_row() -> None:
    signs = (1, -1, -1, 1)
    table = np.array(
        [
            [
                row + column + sign * each
                for column, each in zip((-2, 0, 2), (1, -2, 1), strict=True)
            ]
            for row, sign in zip(ROWS, signs, strict=True)
        ],
        dtype=np.float64,
    )
    between, within = statistics.variance_components(table)
    assert (between.variance, between.freedom) == (pytest.approx(20 / 3), 3)
    assert (within.variance, within.freedom) == (pytest.approx(7), pytest.approx(784 / 152))


def test_a_table_without_chance_has_a_band_of_one_value() -> None:
    between, within = statistics.variance_components(np.array([[1.0, 1.0, 1.0], [3.0, 3.0, 3.0]]))
    assert (between, within) == (Variance(2, 1), Variance(0, 2))
    assert statistics.prediction_interval(5, within, within) == Interval(5, 5)


# ---- Numbers of a run.


def test_late_losses_are_those_from_epoch_40_on() -> None:
    losses = {38: 100.0, 39: 50.0, 40: 1.0, 41: 2.0, 49: 6.0}
    steps = [step(epoch=epoch, loss=loss, ends=epoch % 2 == 0) for epoch, loss in losses.items()]
    (claim,) = [each for each in source("book-async").claims if each.id == "late-loss"]
    assert measures.value(claim, bare_run(worker(*steps), worker(step(epoch=40, loss=7.0)))) == 4.0
    assert measures.value(claim, bare_run(worker(*steps[:2]))) is None


def test_the_mean_of_printed_places_is_geometric_and_needs_all_of_them() -> None:
    claim = replace(
        next(each for each in source("book-async").claims if each.id == "losses"),
        keys={"workers": [0, 1], "epochs": [9]},
    )
    ends, other = step(epoch=9, loss=2.0), step(epoch=9, loss=9.0, ends=False)
    assert measures.value(
        claim, bare_run(worker(other, ends), worker(step(epoch=9, loss=8.0)))
    ) == (pytest.approx(4.0))
    assert measures.value(claim, bare_run(worker(ends), worker(other))) is None
    assert measures.value(claim, bare_run(worker(ends))) is None
    infinite = measures.value(claim, bare_run(worker(ends), worker(step(epoch=9, loss=math.inf))))
    assert infinite is not None
    assert math.isnan(infinite)


@pytest.mark.parametrize(("others", "left"), [((110, 90), 1), ((110, 89), 0), ((100, 50), 0)])
def test_the_others_updates_after_a_late_start(others: tuple[int, int], left: int) -> None:
    """It starts after 199 updates of theirs."""
    first = [worker(ended_at=made) for made in others]
    late = worker(step(local=10, total=209), ended_at=10)
    run = bare_run(*first, late, start={"worker-2": "10s"})
    assert judged("book-async", "late-starter", [run]).ours.mean == left
    assert judged("book-async", "late-starter", [run]).verdict is (OUTSIDE if left else PASS)
    long = judged("book-async", "long-overlap", [run])
    assert long.verdict is (PASS if left else OUTSIDE)


def test_the_others_continue_in_long_trainings() -> None:
    late = worker(step(local=10, total=209))

    def run(made: int) -> RunMetrics:
        return bare_run(worker(ended_at=made), worker(), late, start={"worker-2": "10s"})

    assert judged("book-async", "long-overlap", [run(200)] * 3).verdict is PASS
    assert judged("book-async", "long-overlap", [run(200), run(199), run(200)]).verdict is OUTSIDE


# ---- Global counts. Of 30 stretches 24 or more are otherwise with p 0.0007, 23 with 0.0026.


def counted(odd: int, of: int, start: int = 0) -> RunMetrics:
    """Workers that make a step a record; between two of one, the global step grows by this."""
    grown = [2 + n % 7 for n in range(odd)] if of == odd else []
    totals = [start]
    for n in range(of):
        totals.append(totals[-1] + (grown[n] if grown else 1 if n >= odd else 2 + n))
    steps = tuple(step(local=n, total=total) for n, total in enumerate(totals))
    # The other worker has recorded the two ends, so that all of this time is common.
    other = (step(local=0, total=start), step(local=0, total=totals[-1]))
    return bare_run(worker(*steps), worker(*other))


@pytest.mark.parametrize(
    ("odd", "of", "word"), [(24, 30, PASS), (23, 30, OUTSIDE), (24, 29, FEW), (0, 30, OUTSIDE)]
)
def test_more_than_half_of_the_stretches_differ(odd: int, of: int, word: ClaimStatus) -> None:
    """`odd` counts those that differ from the most frequent one; of these there are two or more."""
    found = judged("book-async", "global-varies", [counted(odd, of)])
    assert found.verdict is word
    if word is PASS:
        assert found.ours.mean == 0.8


def test_one_run_in_step_is_not_hidden_by_two_that_are_not() -> None:
    good, bad = counted(30, 36), counted(0, 36)
    assert judged("book-async", "global-varies", [good] * 3).verdict is PASS
    assert judged("book-async", "global-varies", [good, bad, good]).verdict is OUTSIDE
    assert judged("book-async", "global-varies", [good, counted(5, 6), good]).verdict is FEW


def remainders(*tables: Sequence[int]) -> RunMetrics:
    """Workers that have recorded each remainder of the global step so often, the first twice."""
    workers = []
    for zeros, *others in tables:
        counts = (zeros - 2, *others)
        totals = [300 + n for n, times in enumerate(counts) for _ in range(times)]
        # All have the time from 0 to 900 in common.
        workers.append(worker(*[step(local=n, total=t) for n, t in enumerate([0, *totals, 900])]))
    return bare_run(*workers)


# Pearson's χ² of six degrees of freedom (three workers, three remainders) is 22.458 at 0.001. With
# ten of each expected it is the sum of squares of what is more or less, by ten: the remainders are
# 20, 10, 0 (20.0), then 12, 12, 6 (2.4) or 13, 11, 6 (2.6), then 10, 10, 10 (0).


@pytest.mark.parametrize(("second", "word"), [((12, 12, 6), PASS), ((13, 11, 6), OUTSIDE)])
def test_remainders_as_frequent_as_chance_has_them(
    second: tuple[int, ...], word: ClaimStatus
) -> None:
    run = remainders((20, 10, 0), second, (10, 10, 10))
    assert judged("book-async", "global-no-pattern", [run]).verdict is word


def test_one_run_with_a_pattern_is_not_hidden_by_two_without() -> None:
    even, turns = [remainders(*[counts] * 3) for counts in ((12, 12, 12), (36, 0, 0))]
    assert judged("book-async", "global-no-pattern", [even] * 3).verdict is PASS
    assert judged("book-async", "global-no-pattern", [even, even, turns]).verdict is OUTSIDE
    short = remainders((10, 0, 0), (9, 0, 0), (10, 0, 0))
    assert judged("book-async", "global-no-pattern", [even, short]).verdict is FEW


# ---- Accuracies.


def ended_with(*accuracies: float | None) -> RunMetrics:
    """Workers that ended one after the other."""
    return bare_run(
        *[
            worker(accuracy=each, tested_at=None if each is None else 100 + n)
            for n, each in enumerate(accuracies)
        ]
    )


# Of three gains 1 - d, 1, 1 + d Student's t is √3 / d; it is 2.920 at one-sided 0.05 with two
# degrees of freedom, where d is 0.5932.


@pytest.mark.parametrize(("d", "word"), [(0.59, PASS), (0.597, OUTSIDE)])
def test_the_last_tests_best_by_students_t(d: float, word: ClaimStatus) -> None:
    runs = [ended_with(0.5, 0.5, 0.5 + gain / 100) for gain in (1 - d, 1, 1 + d)]
    assert judged("book-async", "last-tests-best", runs).verdict is word
    assert judged("book-async", "last-tests-best", runs[:2]).verdict is FEW


def test_one_run_in_which_the_last_tests_worst() -> None:
    good, bad = ended_with(0.8, 0.8, 0.81), ended_with(0.8, 0.81, 0.8)
    assert judged("book-async", "last-tests-best", [good] * 3).verdict is PASS
    assert judged("book-async", "last-tests-best", [good, bad, good]).verdict is OUTSIDE
    assert (
        judged("book-async", "last-tests-best", [*[good] * 3, ended_with(0.8, 0.8, None)]).verdict
        is FEW
    )
    untimed = bare_run(
        worker(accuracy=0.8, tested_at=100), worker(accuracy=0.9), worker(accuracy=0.8, tested_at=9)
    )
    assert judged("book-async", "last-tests-best", [*[good] * 3, untimed]).verdict is FEW


def test_the_accuracies_differ_in_every_run() -> None:
    apart, same = ended_with(0.8866, 0.8866, 0.8865), ended_with(0.8866, 0.8866, 0.8866)
    found = judged("book-async", "accuracies-differ", [apart] * 3)
    assert (found.verdict, found.why) == (PASS, "they differ in every run")
    assert found.ours.mean == pytest.approx(0.0001)
    found = judged("book-async", "accuracies-differ", [apart, same, apart])
    assert (found.verdict, found.why) == (OUTSIDE, "equal in 1 of 3 runs")
    assert (
        judged("book-async", "accuracies-differ", [apart, ended_with(0.8, None, 0.7)]).verdict
        is FEW
    )


# ---- Losses against those that are printed. By counting: of six values against twelve, no pair in
# disorder has p 2/18,564; three at most, 2 · 7/18,564 = 0.00075; and four
# at most, 2 · 12/18,564 = 0.0013.

PRINTED = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


def same_losses(*runs: Sequence[float]) -> ClaimStatus:
    return verdict_on_losses(*runs).verdict


def verdict_on_losses(*runs: Sequence[float]) -> ClaimResult:
    whole = source("blog-async")
    (claim,) = [each for each in whole.claims if each.id == "loss-early"]
    asked = replace(claim, keys={"printed": PRINTED, "since": 100, "until": 200})
    outside = (step(total=99, loss=3.0), step(total=201, loss=3.0))
    made = [
        bare_run(worker(*outside, *[step(total=100 + 9 * n, loss=x) for n, x in enumerate(losses)]))
        for losses in runs
    ]
    _, found = evaluate_claims(replace(whole, claims=(asked,)), {"whole": made}, None)
    return found


HIGHER = [6.5 + n for n in range(11)]


@pytest.mark.parametrize(("lowest", "word"), [(2.5, PASS), (3.5, OUTSIDE), (6.2, OUTSIDE)])
def test_losses_that_may_be_the_printed_ones(lowest: float, word: ClaimStatus) -> None:
    assert same_losses([*HIGHER, lowest]) is word


def test_one_run_with_other_losses_is_not_hidden_by_two_with_the_same() -> None:
    same = [n / 2 for n in range(1, 13)]
    assert same_losses(same, same, same) is PASS
    assert same_losses(same, [*HIGHER, 6.2], same) is OUTSIDE
    # Of 7 losses none could differ: 2 / 1,716 is above 0.001. Of 8 it is 2 / 3,003.
    assert same_losses(same, same[:7]) is FEW
    assert same_losses(same, same[:8]) is PASS


# ---- Synchronous workers.


@pytest.mark.parametrize(("apart", "word"), [(0, PASS), (1, PASS), (2, OUTSIDE), (100, OUTSIDE)])
@pytest.mark.parametrize("side", [1, -1])
def test_workers_are_a_round_apart_at_most(apart: int, side: int, word: ClaimStatus) -> None:
    far = bare_run(worker(step(500, 500)), worker(step(500, 500 + side * apart)))
    near = bare_run(worker(step(500, 500)), worker(step(500, 500)))
    assert judged("book-sync", "in-step", [far]).verdict is word
    assert judged("book-sync", "in-step", [near, near, far]).verdict is word


# Wilcoxon's signed ranks of 11 epochs: the one with the rank 7 may be on the wrong side (19 of
# 2,048 sums of ranks are as small, p 0.0093), the one with the rank 8 not (25 of them, 0.0122).


def paced(ratios: Sequence[float]) -> RunMetrics:
    """Epochs in which the others are this factor faster than worker 0, which is slowed."""
    ends: tuple[list[Step], list[Step]] = ([step(epoch=0, time_s=0.0)], [step(epoch=0, time_s=0.0)])
    for n, ratio in enumerate(ratios, start=1):
        for steps, taken in zip(ends, (ratio, 1.0), strict=True):
            steps.append(step(epoch=n, time_s=steps[-1].time_s + taken))
    slowed, other = (worker(*steps) for steps in ends)
    return bare_run(replace(slowed, disturbed=("slow:0.3,60s worker-0",)), other, other)


def about(ratio: float, epochs: int = 11) -> list[float]:
    """As good as one ratio; where all were the same, SciPy would try all permutations."""
    return [ratio * (1 + 1e-6 * n) for n in range(epochs)]


def ranked(limit: float, wrong: int, side: int) -> list[float]:
    """Eleven ratios about a limit, of which one rank is on the wrong side of it."""
    signs = {rank: -side if rank == wrong else side for rank in range(1, 12)}
    return [limit * math.exp(0.002 * rank * sign) for rank, sign in signs.items()]


@pytest.mark.parametrize(
    ("claim", "ratios", "word"),
    [
        ("slowest-sets-pace", about(1.09), PASS),
        ("slowest-sets-pace", about(1.11), OUTSIDE),
        ("slowest-sets-pace", about(1 / 1.09), PASS),
        ("slowest-sets-pace", about(1 / 1.11), OUTSIDE),
        ("slowest-sets-pace", ranked(1.1, 7, -1), PASS),
        ("slowest-sets-pace", ranked(1.1, 8, -1), OUTSIDE),
        ("slowest-sets-pace", ranked(1 / 1.1, 7, 1), PASS),
        ("slowest-sets-pace", ranked(1 / 1.1, 8, 1), OUTSIDE),
        ("slowest-sets-pace", about(1.0, 8), PASS),
        ("slowest-sets-pace", about(1.0, 7), FEW),
        ("others-run-ahead", about(1.51), PASS),
        ("others-run-ahead", about(1.49), OUTSIDE),
        ("others-run-ahead", ranked(1.5, 7, 1), PASS),
        ("others-run-ahead", ranked(1.5, 8, 1), OUTSIDE),
        ("others-run-ahead", about(3.0, 8), PASS),
        ("others-run-ahead", about(3.0, 7), FEW),
    ],
)
def test_paces(claim: str, ratios: list[float], word: ClaimStatus) -> None:
    assert judged("book-sync", claim, [paced(ratios)]).verdict is word


@pytest.mark.parametrize(
    ("claim", "good", "bad"), [("slowest-sets-pace", 1.0, 1.12), ("others-run-ahead", 3.0, 1.45)]
)
def test_one_run_at_another_pace_is_not_hidden_by_two(claim: str, good: float, bad: float) -> None:
    fine, other = paced(about(good)), paced(about(bad))
    assert judged("book-sync", claim, [fine] * 3).verdict is PASS
    assert judged("book-sync", claim, [fine, other, fine]).verdict is OUTSIDE
    assert judged("book-sync", claim, [fine, paced(about(good, 7)), fine]).verdict is FEW
    assert judged("book-sync", claim, [fine] * 3).ours.mean == pytest.approx(good, rel=1e-4)


# ---- Steadier losses.


def spread(wide: float, pairs: int, seed: int) -> RunMetrics:
    """Losses whose logarithms have this random spread."""
    losses = np.exp(wide * np.random.default_rng(seed).standard_normal(4 * pairs))
    return bare_run(worker(*[step(n, n, loss=float(x)) for n, x in enumerate(losses, 1)]))


def steadier(sync: Sequence[RunMetrics], other: RunMetrics) -> ClaimStatus:
    return judged("book-sync", "steadier", sync, **{"async": [other]}).verdict


def test_a_loss_is_steadier_only_by_the_test() -> None:
    """Of 150 pairs each a spread that is a tenth smaller may be chance, and half of it is not."""
    other = spread(0.3, 150, 1)
    assert steadier([spread(0.27, 150, 2)], other) is OUTSIDE
    assert steadier([spread(0.15, 150, 2)], other) is PASS
    assert steadier([spread(0.6, 150, 2)], other) is OUTSIDE  # as significant, the other way
    assert steadier([spread(0.15, 100, 2)], other) is PASS
    assert steadier([spread(0.15, 99, 2)], other) is FEW
    assert steadier([spread(0.15, 150, 2)], spread(0.3, 99, 1)) is FEW


def test_one_run_that_is_not_steadier_is_not_hidden_by_two() -> None:
    other = spread(0.3, 150, 1)
    good = [spread(0.1, 150, seed) for seed in (2, 3)]
    assert steadier([*good, spread(0.1, 150, 4)], other) is PASS
    assert steadier([*good, spread(0.28, 150, 4)], other) is OUTSIDE
    assert steadier([*good, bare_run(worker())], other) is FEW


def test_pairs_are_of_a_trainings_second_half() -> None:
    """A first half that is wilder does not count, nor does a loss that falls."""
    other, calm = spread(0.3, 150, 1), spread(0.15, 150, 2)
    steps = calm.workers[0].steps
    wild = spread(3.0, 150, 3).workers[0].steps[:300]
    mixed = [*wild, *steps[300:]]
    falling = [replace(each, loss=each.loss * 0.99**n) for n, each in enumerate(mixed)]
    run = bare_run(worker(*falling))
    found = judged("book-sync", "steadier", [run], **{"async": [other]})
    assert found.verdict is PASS
    assert found.ours.mean == pytest.approx(0.5, rel=0.2)


# ---- Stale gradients. Student's t is 2.920 again, and the logarithms 1 - d, 1, 1 + d.


def pair(role: str, logs: Sequence[float], staleness: float = 1.5) -> dict[str, list[RunMetrics]]:
    """Runs alone, with losses of 2, and runs of four workers, with this factor of e to the log."""
    alone = [
        bare_run(worker(), seed=seed, mean_staleness=0.0, results={"test loss": 2.0})
        for seed in range(len(logs))
    ]
    several = [
        bare_run(
            *[worker()] * 4,
            seed=seed,
            mean_staleness=staleness,
            results={"test loss": 2.0 * math.exp(log)},
        )
        for seed, log in enumerate(logs)
    ]
    return {f"alone{role}": alone, f"several{role}": several}


def stale(claim: str, runs: Mapping[str, Sequence[RunMetrics]]) -> ClaimResult:
    whole = source("staleness")
    (asked,) = [each for each in whole.claims if each.id == claim]
    _, found = evaluate_claims(replace(whole, claims=(asked,)), runs, None)
    return found


@pytest.mark.parametrize(("d", "word"), [(0.59, PASS), (0.597, OUTSIDE)])
def test_stale_gradients_raise_the_loss_by_students_t(d: float, word: ClaimStatus) -> None:
    found = stale("overshoot", pair("", (1 - d, 1, 1 + d)))
    assert found.verdict is word
    assert stale("overshoot", pair("", (d - 1, -1, -1 - d))).verdict is OUTSIDE
    assert stale("overshoot", pair("", (1, 1))).verdict is FEW
    assert stale("overshoot", pair("", (1, 1, -1))).verdict is OUTSIDE


@pytest.mark.parametrize("cured", ["rate", "batch"])
@pytest.mark.parametrize(("d", "word"), [(0.59, PASS), (0.597, OUTSIDE)])
def test_a_cure_reduces_the_harm(cured: str, d: float, word: ClaimStatus) -> None:
    """The harm is 2 each time, and with the cure 1 less in the mean."""
    runs = {**pair("", (2, 2, 2)), **pair(f"-small-{cured}", (1 - d, 1, 1 + d))}
    found = stale(f"smaller-{cured}", runs)
    assert found.verdict is word
    # One of three in which it does not help.
    runs = {**pair("", (2, 2, 2)), **pair(f"-small-{cured}", (1, 1, 3))}
    assert stale(f"smaller-{cured}", runs).verdict is OUTSIDE
    runs = {**pair("", (2, 2)), **pair(f"-small-{cured}", (1, 1, 1))}
    assert stale(f"smaller-{cured}", runs).verdict is FEW


def test_the_harm_is_a_ratio_of_losses_with_the_same_seed() -> None:
    found = stale("overshoot", pair("", (math.log(3),) * 3))
    assert (found.ours.mean, found.verdict) == (pytest.approx(3), PASS)
    runs = pair("", (1, 1, 1))
    other = [replace(run, seed=(run.seed or 0) + 1) for run in runs["several"]]
    assert stale("overshoot", {**runs, "several": other}).why.startswith("2 pairs of runs")
    diverged = [replace(run, results={**run.results, "test loss": math.inf}) for run in other]
    assert stale("overshoot", {**runs, "several": diverged}).verdict is FEW


@pytest.mark.parametrize(("staleness", "word"), [(1.5, PASS), (1.49, FEW)])
def test_gradients_must_be_stale(staleness: float, word: ClaimStatus) -> None:
    """Among four workers half of the 3 updates that they can be late."""
    found = stale("overshoot", pair("", (1, 1.1, 1.2), staleness))
    assert found.verdict is word
    assert ("were not stale" in found.why) == (word is FEW)


# ---- The interval that is shown.


def test_the_shown_interval_is_students_95_per_cent() -> None:
    """Of 1, 2, 3: 2 ± 4.3027 · 1 / √3."""
    found = statistics.mean_interval([1.0, 2.0, 3.0])
    assert found is not None
    assert (found.low, found.high) == pytest.approx((2 - 2.48414, 2 + 2.48414), abs=1e-4)
    runs = [bare_run(global_steps=steps) for steps in (1, 2, 3)]
    ours = judged("book-async", "global-steps", runs).ours
    assert (ours.mean, ours.n) == (2, 3)
    assert (ours.low, ours.high) == pytest.approx((2 - 2.48414, 2 + 2.48414), abs=1e-4)


def test_the_shown_interval_of_losses_is_that_of_their_logarithms() -> None:
    """Of 1, 2, 4: 2 times or by 2 to the power of 4.3027 · 1 / √3."""
    runs = [bare_run(worker(step(5_500, 1, 9, loss))) for loss in (1.0, 2.0, 4.0)]
    ours = judged("book-async", "loss.worker-0.epoch-9", runs).ours
    assert (ours.mean, ours.n) == (pytest.approx(2), 3)
    assert (ours.low, ours.high) == pytest.approx((2 * 2**-2.48414, 2 * 2**2.48414), abs=1e-4)


# ---- The reasons, as a user reads them.

RUN = "20260101-0900-async-0001"
SLOW_START = worker(step(local=10, total=209))


def printed_steps(*totals: int) -> list[RunMetrics]:
    return [bare_run(worker(step(5_500, total, 9))) for total in totals]


def gains(*gained: float) -> list[RunMetrics]:
    return [ended_with(0.5, 0.5, 0.5 + each / 100) for each in gained]


@pytest.mark.parametrize(
    ("name", "claim", "runs", "why"),
    [
        (
            "book-async", "global-varies", [counted(24, 30), counted(30, 36)],
            "binomial, more than half of the stretches: p 0.000715 at most, must be < 0.001",
        ),
        (
            "book-async", "global-varies", [counted(24, 29)],
            "a run has 29 records while all workers train, the test needs 30",
        ),
        (
            "book-async", "global-no-pattern",
            [remainders((20, 10, 0), (10, 10, 10), (10, 10, 10))],
            "Pearson, remainders by 3: p 0.00277, must be > 0.001",
        ),
        (
            "book-async", "global-no-pattern", [remainders((10, 0, 0), (9, 0, 0), (10, 0, 0))],
            "a run has 29 records while all workers train, the test needs 30",
        ),
        (
            "book-async", "last-tests-best", gains(0.41, 1, 1.59),
            "Student's t: p 0.0495, must be < 0.05",
        ),
        ("book-async", "last-tests-best", gains(1, 2), "2 runs, the test needs 3"),
        ("book-async", "last-tests-best", gains(1), "1 run, the test needs 3"),
        (
            "book-async", "last-tests-best", [ended_with(0.5, 0.5, None)],
            f"a worker of run {RUN} has no final accuracy",
        ),
        (
            "book-async", "accuracies-differ", [ended_with(0.5, 0.5, None)],
            f"a worker of run {RUN} has no final accuracy",
        ),
        (
            "book-async", "long-overlap",
            [bare_run(worker(ended_at=200), worker(), SLOW_START, start={"worker-2": "10s"})],
            "updates by others: 1 at least, must be > 0",
        ),
        (
            "book-async", "long-overlap",
            [bare_run(worker(), worker(), worker(), start={"worker-2": "10s"})],
            f"the late worker of run {RUN} has recorded no step",
        ),
        (
            "book-sync", "in-step", [bare_run(worker(step(500, 503)))],
            "local and global step differ by 3 at most",
        ),
        ("book-sync", "in-step", [bare_run(worker())], "a worker has recorded no step"),
        (
            "book-sync", "slowest-sets-pace", [paced(ranked(1.1, 7, -1))] * 2,
            "Wilcoxon, both ways, within 10%, 22 epochs: p 0.00928 at most, must be < 0.01",
        ),
        (
            "book-sync", "others-run-ahead", [paced(ranked(1.5, 8, 1))],
            "Wilcoxon, over 1.5 times, 11 epochs: p 0.0122 at most, must be < 0.01",
        ),
        (
            "book-sync", "others-run-ahead", [paced(about(3.0, 7))],
            "7 epochs beside a slowed worker, the test needs 8",
        ),
        (
            "book-async", "global-step.worker-0.epoch-9", [],
            "no run with the role 'whole' succeeded",
        ),
        (
            "book-async", "global-step.worker-0.epoch-9", [bare_run(parameters={"epochs": 9})],
            "the runs are too short for this claim",
        ),
        (
            "book-async", "global-step.worker-0.epoch-9", [bare_run(worker())],
            f"run {RUN} did not record this value",
        ),
        (
            "book-async", "global-step.worker-0.epoch-9", printed_steps(11_005, 11_005, 11_005),
            "+1.0% off, tolerance 2%",
        ),
        (
            "book-async", "global-step.worker-0.epoch-9", printed_steps(10_569, 10_569, 10_569),
            "-3.0% off, tolerance 2%",
        ),
        (
            "book-async", "global-step.worker-0.epoch-9", printed_steps(1, 1),
            "2 runs, the mean of 3 is needed",
        ),
        (
            "book-async", "global-step.worker-0.epoch-9", printed_steps(1),
            "1 run, the mean of 3 is needed",
        ),
        (
            "book-async", "loss.worker-0.epoch-9", [bare_run(worker(step(1, 1, 9, math.nan)))],
            f"the value of run {RUN} is NaN or infinite",
        ),
        ("blog-sync", "accuracy", [bare_run()], "the post prints no accuracy"),
    ],
)  # fmt: skip
def test_a_verdict_names_its_reason(
    name: str, claim: str, runs: list[RunMetrics], why: str
) -> None:
    assert judged(name, claim, runs).why == why


def test_where_a_run_has_no_value_the_others_values_are_shown() -> None:
    runs = [*printed_steps(10_895, 10_897), bare_run(worker())]
    ours = judged("book-async", "global-step.worker-0.epoch-9", runs).ours
    assert (ours.mean, ours.n) == (10_896, 2)


def test_our_values_are_shown_whatever_the_verdict() -> None:
    few = judged("book-async", "global-step.worker-0.epoch-9", printed_steps(1, 3)).ours
    assert (few.mean, few.n) == (2, 2)
    outside = verdict_by_reference("high", [99] * 3).ours
    assert (outside.mean, outside.n) == (99, 3)
    nothing = judged("book-async", "global-step.worker-0.epoch-9", []).ours
    assert nothing == Observed(None, None, None, 0)


def test_the_verdict_on_all_runs() -> None:
    book = replace(source("book-async"), claims=())
    failed = bare_run(run_id="second", succeeded=False)
    (found,) = evaluate_claims(book, {"whole": [bare_run(), failed]}, None)
    assert found == ClaimResult(
        claim="runs",
        words="runs that failed",
        source_value=None,
        ours=Observed(1, None, None, 2),
        unit="runs",
        band=Interval(0, 0),
        verdict=OUTSIDE,
        why="see `lab show second`",
        group="own",
        source="lab",
        where="each run's state",
        note="",
    )
    (passed,) = evaluate_claims(book, {"whole": [bare_run()]}, None)
    assert (passed.verdict, passed.why, passed.ours) == (PASS, "", Observed(0, None, None, 1))
    (none,) = evaluate_claims(book, {}, None)
    assert (none.verdict, none.why, none.ours) == (FEW, "", Observed(None, None, None, 0))


def test_a_comparison_of_losses_names_its_reason() -> None:
    def why(sync: Sequence[RunMetrics], **others: Sequence[RunMetrics]) -> str:
        return judged("book-sync", "steadier", sync, **others).why

    other, calm = spread(0.3, 150, 1), spread(0.15, 150, 2)
    assert why([calm], **{"async": [other]}) == (
        "Brown-Forsythe, 150 and 150 pairs: p < 0.0001, must be < 0.001;"
        " single runs: p < 0.0001 at most, must be < 0.05"
    )
    assert why([calm]) == "no asynchronous run to compare with"
    assert why([calm, bare_run(worker())], **{"async": [other]}) == "a run has recorded no losses"
    still = spread(0, 150, 1)
    assert why([calm], **{"async": [still]}) == "the losses of asynchronous updates do not vary"
    few = "99 and 150 pairs, the test needs 100 of each"
    assert why([spread(0.15, 99, 2)], **{"async": [other]}) == few


def test_the_test_of_printed_losses_names_its_reason() -> None:
    """The p of two samples with the same values is 1: neither tends to larger ones."""
    same = [n / 2 for n in range(1, 13)]
    passed = verdict_on_losses([*PRINTED, *PRINTED])
    assert passed.why == "Mann-Whitney, 12 losses: p 1 at least, must be > 0.001"
    assert passed.ours.mean == 3.5
    few = verdict_on_losses(same, same[:7])
    assert few.why == "a run has too few losses in this range: 7"


def test_a_claim_about_stale_gradients_names_its_reason() -> None:
    assert stale("overshoot", pair("", (0.41, 1, 1.59))).why == (
        "Student's t, 3 seeds: p 0.0495, must be < 0.05"
    )
    needed = "of runs with the same seed, the test needs 3"
    assert stale("overshoot", pair("", (1, 1))).why == f"2 pairs {needed}"
    assert stale("overshoot", pair("", (1,))).why == f"1 pair {needed}"
    fresh = stale("overshoot", pair("", (1, 1, 1), 1.49))
    assert fresh.why == f"the gradients of run {RUN} were not stale"
