"""The limits of each rule, and its errors on simulated sources whose truth is known.

All limits are computed here by formulas of their own.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from lab.reproduce.claims import LOG, Claim
from lab.reproduce.reference import trainings
from lab.reproduce.verdicts import Decision, Verdict, decide
from tests.support.reproducing import RUNS, by_seed, number, source_of, statement

NEAR = 1e-9
"""How far, relative to the width of an interval, a value is from a limit."""

OURS = (0.61, 0.58, 0.6, 0.63, 0.59, 0.6, 0.62, 0.57)


def decided(claims: Sequence[Claim], *values: Sequence[float | None]) -> list[Decision]:
    found = decide(
        source_of(*claims), {c.id: by_seed(v) for c, v in zip(claims, values, strict=True)}
    )
    return [found[claim.id] for claim in claims]


def verdict(claim: Claim, values: Sequence[float | None]) -> Verdict:
    return decided([claim], values)[0].verdict


def limits(values: Sequence[float], claims: int = 1) -> tuple[float, float]:
    """The prediction interval of one of several counted claims, on the scale of the values."""
    n = len(values)
    half = float(stdtrit(n - 1, 1 - 0.05 / claims / 2)) * statistics.stdev(values)
    half *= math.sqrt(1 + 1 / n)
    return statistics.fmean(values) - half, statistics.fmean(values) + half


@pytest.mark.parametrize("claims", [1, 6])
@pytest.mark.parametrize("scale", ["linear", LOG])
def test_a_number_must_be_in_the_interval_for_one_more_run(scale: str, claims: int) -> None:
    logs = [math.log(x) if scale == LOG else x for x in OURS]
    low, high = limits(logs, claims)
    others = [statement(str(i)) for i in range(claims - 1)]

    def at(place: float) -> Verdict:
        value = math.exp(place) if scale == LOG else place
        claim = number(value, matters=1e6, scale=scale)
        return decided([claim, *others], OURS, *[[0.0] * RUNS] * len(others))[0].verdict

    near = NEAR * (high - low)
    assert at(low + near) is at(high - near) is Verdict.REPRODUCED
    assert at(low - near) is at(high + near) is Verdict.NOT_REPRODUCED


@pytest.mark.parametrize("scale", ["linear", LOG])
def test_an_interval_wider_than_the_deviation_that_matters_cannot_tell(scale: str) -> None:
    logs = [math.log(x) if scale == LOG else x for x in OURS]
    low, high = limits(logs)
    width = math.exp(high - low) if scale == LOG else high - low

    def word(matters: float, printed: float = 0.6) -> Verdict:
        return verdict(number(printed, matters, scale=scale), OURS)

    assert word(width * (1 + NEAR)) is Verdict.REPRODUCED
    assert word(width * (1 - NEAR)) is Verdict.INCONCLUSIVE
    assert word(width * (1 - NEAR), printed=0.7) is Verdict.NOT_REPRODUCED


def test_a_number_of_too_few_or_unfinished_runs_cannot_tell() -> None:
    for values, why in (
        (OURS[1:], "7 of 8 runs"),
        ((), "0 of 8 runs"),
        ((*OURS[1:], None), "the run of seed 8 did not record this value"),
        ((*OURS[1:], math.nan), "the value of seed 8 is not finite"),
        ((*OURS[1:], math.inf), "the value of seed 8 is not finite"),
    ):
        for claim in (number(0.6, 1), number(9, 1), statement(), statement(effect=9)):
            (found,) = decided([claim], values)
            assert (found.verdict, found.why) == (Verdict.INCONCLUSIVE, why)


@pytest.mark.parametrize("direction", ["above", "below"])
def test_a_statement_must_be_shown_by_significantly_more_than_half_of_the_runs(
    direction: str,
) -> None:
    """One-sided: 7 of 8 runs or more have a probability of 9/256, 6 or more of 37/256."""
    claim = statement(direction=direction, effect=0.5)
    sign = 1 if direction == "above" else -1
    for effect in (NEAR, 1, 1e9):  # the size of a value has no weight
        words = [
            verdict(claim, [0.5 + sign * effect] * shown + [0.5 - sign * effect] * (8 - shown))
            for shown in range(9)
        ]
        assert words[7:] == [Verdict.REPRODUCED] * 2
        assert words[2:7] == [Verdict.INCONCLUSIVE] * 5
        assert words[:2] == [Verdict.NOT_REPRODUCED] * 2
    assert verdict(claim, [0.5] * 8) is Verdict.REPRODUCED  # the effect itself is one of interest


def p_of(shown: int, n: int = RUNS) -> float:
    return sum(math.comb(n, k) for k in range(shown, n + 1)) / 2**n


def in_closed_tests(ps: Sequence[float], level: float) -> list[bool]:
    """Holm's correction, as a closed test with Bonferroni's: an independent formulation."""
    places = range(len(ps))
    subsets = [s for k in range(1, len(ps) + 1) for s in itertools.combinations(places, k)]
    return [all(min(ps[j] for j in s) <= level / len(s) for s in subsets if i in s) for i in places]


@pytest.mark.parametrize("numbers", [0, 2])
def test_the_statements_of_a_source_are_corrected_together(numbers: int) -> None:
    """Every possible outcome of three statements, of which the last has one of four values."""
    claims = [statement(name) for name in "abc"]
    others = [number(0.6, 1, id=f"n{i}") for i in range(numbers)]
    level = 0.05 * 3 / (3 + numbers)
    for shown in itertools.product(range(9), range(9), (0, 4, 7, 8)):
        values = [[1.0] * k + [-1.0] * (8 - k) for k in shown]
        found = decided([*claims, *others], *values, *[OURS] * numbers)[:3]
        holds = in_closed_tests([p_of(k) for k in shown], level)
        fails = in_closed_tests([p_of(8 - k) for k in shown], level)
        assert [each.verdict is Verdict.REPRODUCED for each in found] == holds, shown
        assert [each.verdict is Verdict.NOT_REPRODUCED for each in found] == fails, shown


def test_a_statement_without_values_counts_in_the_correction() -> None:
    claims = [statement("a"), statement("b")]
    values = [1.0] * 7 + [-1.0]  # p is 0.035: enough alone, not beside another one
    assert verdict(claims[0], values) is Verdict.REPRODUCED
    assert decided(claims, values, [])[0].verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("kind", ["setting", "check"])
def test_a_setting_is_ok_if_every_run_has_it(kind: str) -> None:
    claim = number(100, 0, kind=kind)
    assert verdict(claim, [100.0] * 8) is Verdict.OK
    assert verdict(claim, [*[100.0] * 7, math.nextafter(100, 0)]) is Verdict.FAILED
    assert verdict(claim, [*[100.0] * 7, None]) is Verdict.UNCLEAR
    assert verdict(claim, []) is Verdict.UNCLEAR


def test_equivalence_needs_the_whole_interval_within_the_margin() -> None:
    """Two one-sided tests; the spread of the reference's own batch orders counts, too."""
    values = [0.0009, 0.0004, 0.0011, 0.0006, 0.0008, 0.0002, 0.0012, 0.0007]
    means = [statistics.fmean(each["accuracy"]) for each in trainings("async")]
    parts = (statistics.variance(values) / 8, 7), (statistics.variance(means) / 3, 2)
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / degrees for part, degrees in parts)
    half = float(stdtrit(freedom, 0.95)) * math.sqrt(total)
    low, high = statistics.fmean(values) - half, statistics.fmean(values) + half
    assert low > 0
    assert half > float(stdtrit(7, 0.95)) * math.sqrt(parts[0][0])

    def word(margin: float, sign: int = 1) -> Verdict:
        claim = number(0, 0, kind="check", margin=margin, keys={"mode": "async"})
        return verdict(claim, [sign * value for value in values])

    for sign in (1, -1):
        assert word(high * (1 + NEAR), sign) is Verdict.OK
        assert word(high * (1 - NEAR), sign) is Verdict.UNCLEAR
        assert word(low * (1 + NEAR), sign) is Verdict.UNCLEAR
        assert word(low * (1 - NEAR), sign) is Verdict.FAILED
    claim = number(0, 0, kind="check", margin=1, keys={"mode": "async"})
    assert verdict(claim, values[1:]) is Verdict.UNCLEAR  # seven runs


values_of_runs = st.lists(st.floats(0.1, 10), min_size=RUNS, max_size=RUNS)


@pytest.mark.parametrize("scale", ["linear", LOG])
@given(values=values_of_runs, printed=st.floats(0, 1), spare=st.floats(1e-6, 2))
@settings(max_examples=100, deadline=None)
def test_the_deviation_that_matters_changes_the_verdict_on_a_reproduced_number(
    scale: str, values: list[float], printed: float, spare: float
) -> None:
    """Of any runs, at any place of the interval, in both directions."""
    logs = [math.log(x) if scale == LOG else x for x in values]
    low, high = limits(logs)
    place, matters = low + (0.001 + 0.998 * printed) * (high - low), (high - low) + spare
    of = math.exp if scale == LOG else float
    if high - low > 1e-6:  # values that are nearly equal differ by rounding
        assert verdict(number(of(place), of(matters), scale=scale), values) is Verdict.REPRODUCED
    for moved in (place - matters, place + matters):
        claim = number(of(moved), of(matters), scale=scale)
        assert verdict(claim, values) is Verdict.NOT_REPRODUCED


# Simulated sources: three numbers, one of them on the log scale, and three statements.

MATTERS = 1.0
CLAIMS = (
    number(0, MATTERS, id="n0"),
    number(0, MATTERS, id="n1"),
    number(1, math.exp(MATTERS), id="n2", scale=LOG),
    statement("s0", "above", 0.5),
    statement("s1", "below", 0.5),
    statement("s2", "above", 0.5),
)


def experiment(
    random: np.random.Generator, spread: float, *, shift: float, share: float
) -> Mapping[str, Verdict]:
    """The verdicts of one simulated source.

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
    source = source_of(
        number(printed[0], MATTERS, id="n0"),
        number(printed[1], MATTERS, id="n1"),
        number(math.exp(printed[2]), math.exp(MATTERS), id="n2", scale=LOG),
        *CLAIMS[3:],
    )
    values = [ours[0], ours[1], np.exp(ours[2]), *shown]
    found = decide(source, {c.id: by_seed(v.tolist()) for c, v in zip(CLAIMS, values, strict=True)})
    return {name: each.verdict for name, each in found.items()}


def share_with(
    word: Verdict, spread: float, *, shift: float, share: float, experiments: int = 1_000
) -> float:
    """The share of simulated sources in which any claim has a verdict."""
    random = np.random.default_rng([1, int(1000 * spread), int(10 * shift)])
    found = (experiment(random, spread, shift=shift, share=share) for _ in range(experiments))
    return sum(word in each.values() for each in found) / experiments


@pytest.mark.parametrize("spread", [0.05, 1.0])
def test_true_claims_are_not_refused_in_95_per_cent_of_simulated_sources(spread: float) -> None:
    assert share_with(Verdict.NOT_REPRODUCED, spread, shift=0, share=0.9) <= 0.05


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.15, 0.25, 1.0])
def test_false_claims_are_reproduced_in_at_most_5_per_cent_of_simulated_sources(
    spread: float,
) -> None:
    """All six are false at once; a statement is just false: half of the runs show it."""
    assert share_with(Verdict.REPRODUCED, spread, shift=1, share=0.5) <= 0.05


def test_true_claims_of_narrow_intervals_are_found() -> None:
    """Else a rule that never says REPRODUCED would pass the tests above."""
    random = np.random.default_rng(2)
    for _ in range(50):
        found = experiment(random, 0.02, shift=0, share=1.0)
        assert list(found.values()).count(Verdict.REPRODUCED) >= 5
