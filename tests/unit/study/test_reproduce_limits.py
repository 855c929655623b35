"""The limits of each rule, and its errors on simulated sources whose truth is known.

All limits are computed here by formulas of their own.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import stdtrit

from lab.study.reproduce.claims import Claim
from lab.study.reproduce.measures import trainings
from lab.study.reproduce.verdicts import Result, Verdict, decide
from tests.support.reproducing import RUNS, by_seed, number, source_of, statement

NEAR = 1e-9
"""How far, relative to the width of an interval, a value is from a limit."""

OURS = (0.61, 0.58, 0.6, 0.63, 0.59, 0.6, 0.62, 0.57)
NO, UNSURE, YES = Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE, Verdict.REPRODUCED


def decided(claims: Sequence[Claim], *values: Sequence[float | None]) -> list[Result]:
    pairs = zip(claims, values, strict=True)
    return decide(source_of(*claims), {claim.id: by_seed(each) for claim, each in pairs})


def verdict(claim: Claim, values: Sequence[float | None]) -> Verdict:
    return decided([claim], values)[0].verdict


def half_width(values: Sequence[float], level: float) -> float:
    return float(stdtrit(len(values) - 1, 1 - level / 2)) * statistics.stdev(values)


@pytest.mark.parametrize("claims", [1, 6])
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_number_must_be_in_a_narrow_interval_for_one_more_run(scale: str, claims: int) -> None:
    there, back = (math.log, math.exp) if scale == "log" else (float, float)
    places = list(map(there, OURS))
    half = half_width(places, 0.05 / claims) * math.sqrt(1 + 1 / RUNS)
    low, high = statistics.fmean(places) - half, statistics.fmean(places) + half
    others = [statement(str(i)) for i in range(claims - 1)]

    def at(place: float, matters: float = 10.0) -> Verdict:
        claim = number(back(place), back(matters), scale=scale)
        return decided([claim, *others], OURS, *[[0.0] * RUNS] * len(others))[0].verdict

    near, width = NEAR * (high - low), high - low
    assert [at(each) for each in (low - near, low + near, high - near, high + near)] == [
        NO, YES, YES, NO,
    ]  # fmt: skip
    middle = (low + high) / 2
    assert [at(middle, width + each) for each in (near, -near)] == [YES, UNSURE]
    assert at(high + 1, width - near) is NO


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (OURS[1:], "7 of 8 runs"),
        ((), "0 of 8 runs"),
        ((*OURS[1:], None), "the run of seed 8 has no finite value"),
        ((*OURS[1:], math.nan), "the run of seed 8 has no finite value"),
        ((*OURS[1:], math.inf), "the run of seed 8 has no finite value"),
    ],
)
@pytest.mark.parametrize("claim", [number(0.6, 1), number(9, 1), statement(), statement(effect=9)])
def test_too_few_or_unfinished_runs_cannot_tell(
    claim: Claim, values: Sequence[float | None], why: str
) -> None:
    (found,) = decided([claim], values)
    assert (found.verdict, found.why) == (UNSURE, why)


def is_significant(shown: int | None, level: float) -> bool:
    """Whether so many of eight runs are more than half of all; None: there are no values."""
    tail = () if shown is None else range(shown, RUNS + 1)
    return bool(tail) and sum(math.comb(RUNS, j) for j in tail) / 2**RUNS <= level


@pytest.mark.parametrize("direction", ["above", "below"])
@pytest.mark.parametrize(("statements", "numbers"), [(1, 0), (3, 0), (3, 2)])
def test_statements_must_be_shown_by_significantly_more_than_half_of_the_runs(
    direction: str, statements: int, numbers: int
) -> None:
    """Every possible outcome of some statements; the size of a value has no weight."""
    claims = [statement(f"s{i}", direction, effect=0.5) for i in range(statements)]
    others = [number(0.6, 1, id=f"n{i}") for i in range(numbers)]
    level = 0.05 / (statements + numbers)
    sign = 1 if direction == "above" else -1
    for shown in itertools.product(range(9), *[(None, 0, 4, 7, 8)] * (statements - 1)):
        values = [[] if k is None else [0.5] * k + [0.5 - sign * 10 ** (3 * i - 3)] * (RUNS - k)
                  for i, k in enumerate(shown)]  # fmt: skip
        found = [each.verdict for each in decided([*claims, *others], *values, *[OURS] * numbers)]
        wanted = [YES if is_significant(k, level) else NO
                  if k is not None and is_significant(RUNS - k, level) else UNSURE
                  for k in shown]  # fmt: skip
        assert found[:statements] == wanted, shown


@pytest.mark.parametrize("kind", ["setting", "check"])
def test_a_setting_is_ok_if_every_run_has_it(kind: str) -> None:
    claim = number(100, 0, kind=kind)
    lasts = (100.0, math.nextafter(100, 0), None)
    found = [verdict(claim, [*[100.0] * 7, last]) for last in lasts]
    assert found == [Verdict.OK, Verdict.FAILED, Verdict.UNCLEAR]
    assert verdict(claim, []) is Verdict.UNCLEAR


@pytest.mark.parametrize("sign", [1, -1])
def test_equivalence_needs_the_whole_interval_within_the_margin(sign: int) -> None:
    """Two one-sided tests; the spread of the reference's own batch orders counts, too."""
    values = [sign * each for each in
              (0.0009, 0.0004, 0.0011, 0.0006, 0.0008, 0.0002, 0.0012, 0.0007)]  # fmt: skip
    means = [statistics.fmean(each["accuracy"]) for each in trainings("async")]
    parts = (statistics.variance(values) / 8, 7), (statistics.variance(means) / 3, 2)
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / degrees for part, degrees in parts)
    half = float(stdtrit(freedom, 0.95)) * math.sqrt(total)
    low, high = (abs(statistics.fmean(values)) + side * half for side in (-1, 1))
    assert low > 0
    margins = [high * (1 + NEAR), high * (1 - NEAR), low * (1 + NEAR), low * (1 - NEAR)]
    claims = [number(0, 0, kind="check", margin=margin, keys={"mode": "async"})
              for margin in (*margins, 1)]  # fmt: skip
    found = [verdict(claim, values) for claim in claims[:4]]
    assert found == [Verdict.OK, Verdict.UNCLEAR, Verdict.UNCLEAR, Verdict.FAILED]
    assert verdict(claims[4], values[1:]) is Verdict.UNCLEAR  # seven runs


def experiment(
    random: np.random.Generator, spread: float, *, shift: float, share: float
) -> list[Verdict]:
    """The verdicts of one simulated source: three numbers, one on the log scale, three statements.

    Args:
        random: Draws the values.
        spread: The standard deviation between runs, relative to the deviation that matters.
        shift: By how much the source's own run differs from ours, in deviations that matter.
        share: The share of runs that show each statement.
    """
    ours = spread * random.standard_normal((3, RUNS))
    printed = random.choice([-1, 1], 3) * shift + spread * random.standard_normal(3)
    shown = np.where(random.random((3, RUNS)) < share, 1.0, 0.0)
    shown[1] = 1 - shown[1]
    claims = [
        *(number(printed[i], 1.0, id=f"n{i}") for i in range(2)),
        number(math.exp(printed[2]), math.e, id="n2", scale="log"),
        *(statement(f"s{i}", "below" if i == 1 else "above", 0.5) for i in range(3)),
    ]
    values = [ours[0], ours[1], np.exp(ours[2]), *shown]
    return [each.verdict for each in decided(claims, *(each.tolist() for each in values))]


@pytest.mark.parametrize(
    ("claims_are", "spread"),
    [*(("true", spread) for spread in (0.05, 1.0)),
     *(("false", spread) for spread in (0.02, 0.1, 0.15, 0.25, 1.0))],
)  # fmt: skip
def test_at_most_5_per_cent_of_simulated_sources_have_a_wrong_verdict(
    claims_are: str, spread: float
) -> None:
    """Of false ones all six are false at once; a statement just so: half of the runs show it."""
    truth = {"shift": 0, "share": 0.9} if claims_are == "true" else {"shift": 1, "share": 0.5}
    wrong = NO if claims_are == "true" else YES
    random = np.random.default_rng([1, int(1000 * spread), 10 * int(truth["shift"])])
    found = [wrong in experiment(random, spread, **truth) for _ in range(1_000)]
    assert sum(found) / len(found) <= 0.05
