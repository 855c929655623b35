"""The measures of `lab reproduce` on runs whose values are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lab.reproduce.claims import Claim
from lab.reproduce.measures import LOSS, values
from lab.reproduce.metrics import RunMetrics, Step, WorkerMetrics


def run_of(*workers: WorkerMetrics, **fields: Any) -> RunMetrics:
    return RunMetrics("r", "async", 1, True, {}, {}, (), workers, 0, 0, None, None, **fields)


def worker(losses: Sequence[float], times: Sequence[float] | None = None) -> WorkerMetrics:
    moments = times or range(len(losses))
    return WorkerMetrics(
        tuple(
            Step(local=10 * at, total=20 * at, loss=loss, time_s=float(time))
            for at, (loss, time) in enumerate(zip(losses, moments, strict=True), start=1)
        )
    )


def measured(measure: str, run: RunMetrics, **others: RunMetrics) -> float | None:
    claim = Claim(
        "c", "c", "qualitative", "", measure, keys={"alone": "alone", "against": "against"}
    )
    runs = {"whole": {1: run}, **{role: {1: each} for role, each in others.items()}}
    return values(claim, runs)[1]


def losses(ratio: float) -> list[float]:
    """Wild losses, then as many whose neighbours have this ratio or its inverse, and one more.

    A loss of 0 or infinity is none.
    """
    late = [1.0, ratio, 1.0, 1 / ratio] * 15
    return [*[100.0, 0.01] * 30, *late[:8], 0.0, math.inf, *late[8:], 5.0]


def test_steadiness_is_of_neighbours_in_the_second_half() -> None:
    run, other = run_of(worker(losses(math.e**2))), run_of(worker(losses(math.e)))
    assert measured("steadiness", run, against=other) == pytest.approx(2.0)


def test_the_growth_of_the_global_step_is_for_each_own_step() -> None:
    # The records are 10 own steps apart, then 20; the global step always grows by 2 for each.
    strides = [10] * 20 + [20] * 20
    steps = tuple(Step(sum(strides[:at]), 2 * sum(strides[:at]), 1.0, 0.0) for at in range(1, 41))
    even = WorkerMetrics(steps)
    assert measured("uneven_share", run_of(even)) == 0
    late = replace(steps[-1], total=steps[-1].total + 5)
    odd = replace(even, steps=(*steps[:-1], late))
    assert measured("uneven_share", run_of(odd)) == 1 / 39
    assert measured("remainder_share", run_of(odd)) == 1.0
    assert measured("remainder_share", run_of(even, WorkerMetrics(steps[:29]))) is None


def test_the_speeds_around_a_fault_are_from_the_first_to_the_last_record() -> None:
    times = [0, 1, 3, 4, 6, 10, 14, 16, 18, 20]
    slow = replace(worker([1.0] * 10, [0, 2, 4, 6, 8, 10, 11, 12, 13, 20]), slowed=(0.0, 10.0))
    run = run_of(slow, worker([1.0] * 10, times))
    assert measured("others_ahead", run) == pytest.approx((50 / 10) / (50 / 10))
    assert measured("others_slowed", run) == pytest.approx((50 / 10) / (40 / 10))


@pytest.mark.parametrize(
    ("staleness", "mine", "other", "harm"),
    [
        (1.0, 3.0, 2.0, 1.5),
        (0.99, 3.0, 2.0, None),  # less than half of the largest mean staleness of three workers
        (1.0, 0.0, 2.0, None),
        (1.0, 3.0, 0.0, None),
        (1.0, math.inf, 2.0, None),
        (1.0, math.nan, 2.0, None),
    ],
)
def test_the_harm_of_stale_gradients_is_the_ratio_of_the_losses_of_one_seed(
    staleness: float, mine: float, other: float, harm: float | None
) -> None:
    run = run_of(*[worker([1.0])] * 3, results={LOSS: mine})
    alone = run_of(worker([1.0]), results={LOSS: other})
    run = replace(run, mean_staleness=staleness)
    assert measured("stale_harm", run, alone=alone) == harm
    assert measured("stale_harm", replace(run, seed=2), alone=alone) is None
