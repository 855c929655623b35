"""Decide on claims by the values of our runs; all functions are pure.

The unit is the run: each run has one value. The rules and their levels do not depend on the number
of runs, which the claim file fixes.

- A **number** (measured or fitted) is REPRODUCED if it is within the prediction interval for one
  more run of ours, and this interval is at most as wide as the deviation that matters. Outside it
  is NOT_REPRODUCED, in a wider interval INCONCLUSIVE. Over all m counted claims of a source a wrong
  verdict has a probability of at most 5%, so each interval has the level 5% / m (Bonferroni).
- A **statement** (qualitative) is REPRODUCED if significantly more than half of all runs show at
  least the smallest effect of interest, and NOT_REPRODUCED if significantly less than half do: two
  sign tests, each corrected by Holm's method over the statements of the source.
- A **setting** or a **check** is OK if every run has the expected value; a difference from the
  NumPy reference is OK if the interval of its mean is within the margin (two one-sided tests).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lab.formatting import compared, counted, p_value
from lab.reproduce import measures
from lab.reproduce.claims import COUNTED, LOG, Claim, Kind, Source
from lab.reproduce.reference import reference
from lab.reproduce.statistics import (
    SOURCE_LEVEL,
    Interval,
    difference_interval,
    holm,
    prediction_interval,
    sign_test_p,
)


class Verdict(enum.StrEnum):
    """The verdict on a claim: the first three on claims of a source, the others on our checks."""

    REPRODUCED = "REPRODUCED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_REPRODUCED = "NOT_REPRODUCED"
    OK = "OK"
    UNCLEAR = "UNCLEAR"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one claim. It is also a row of the JSON file.

    Attributes:
        claim: The claim's name.
        text: The claim as a text for users.
        kind: Its kind: a key of `KINDS`.
        where: The place in the source.
        printed: The value that the source prints, or the expected value; or None.
        ours: The middle of our values: the mean, on the log scale the geometric mean, for
            statements the median; or None.
        interval: The prediction interval for one more run, or of the mean difference; or None.
        unit: The unit of these values.
        values: The value of each run, by its seed.
        verdict: The verdict.
        why: The reason, in a line.
    """

    claim: str
    text: str
    kind: Kind
    where: str
    printed: float | None
    ours: float | None
    interval: Interval | None
    unit: str
    values: Mapping[int, float]
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with its reason, and what was computed for it.

    Attributes:
        verdict: The verdict.
        why: The reason, in a line.
        ours: The middle of the values, or None.
        interval: The interval, or None.
    """

    verdict: Verdict
    why: str
    ours: float | None = None
    interval: Interval | None = None


Values = Mapping[int, float | None]
"""The value of each run by its seed; None: the run does not have it."""


def judge(source: Source, runs: measures.Runs) -> list[Result]:
    """Decide on every claim of a source.

    Args:
        source: The source.
        runs: The runs that claims may use, by role and seed.
    """
    found = {claim.id: measures.values(claim, runs) for claim in source.claims}
    decisions = decide(source, found)
    return [
        Result(
            claim.id, claim.text, claim.kind, claim.where, claim.value,
            decisions[claim.id].ours, decisions[claim.id].interval, claim.unit,
            {seed: value for seed, value in found[claim.id].items() if value is not None},
            decisions[claim.id].verdict, decisions[claim.id].why,
        )
        for claim in source.claims
    ]  # fmt: skip


def decide(source: Source, found: Mapping[str, Values]) -> dict[str, Decision]:
    """Decide on every claim by the values of its runs: claim to decision."""
    counted_claims = [claim for claim in source.claims if claim.kind in COUNTED]
    level = SOURCE_LEVEL / max(len(counted_claims), 1)
    decisions = {
        claim.id: _lacking(claim, source.recipes[claim.role].runs, found[claim.id])
        for claim in source.claims
    }
    known = {
        claim.id: np.array(list(found[claim.id].values()), np.float64)
        for claim in source.claims
        if decisions[claim.id] is None
    }
    statements = [claim for claim in counted_claims if claim.kind == "qualitative"]
    of_statements = _statements(statements, known, level * len(statements))
    return {
        claim.id: decisions[claim.id]
        or of_statements.get(claim.id)
        or _single(claim, known[claim.id].tolist(), list(found[claim.id]), level)
        for claim in source.claims
    }


def _lacking(claim: Claim, wanted: int, found: Values) -> Decision | None:
    """The decision if values are lacking; None: there are as many as the claim file asks for."""
    unclear = Verdict.INCONCLUSIVE if claim.kind not in _OWN else Verdict.UNCLEAR
    lacking = [seed for seed, value in found.items() if value is None]
    odd = [seed for seed, value in found.items() if value is not None and not math.isfinite(value)]
    if lacking:
        return Decision(unclear, f"the run of seed {lacking[0]} did not record this value")
    if odd:
        return Decision(unclear, f"the value of seed {odd[0]} is not finite")
    if len(found) < wanted:
        return Decision(unclear, f"{len(found)} of {counted(wanted, 'run')}")
    return None


_OWN: Final = ("setting", "check")


def _single(claim: Claim, values: Sequence[float], seeds: Sequence[int], level: float) -> Decision:
    if claim.margin is not None:
        return _equivalence(claim, values, claim.margin)
    if claim.kind in _OWN:
        return _expected(claim, values, seeds)
    return _number(claim, values, level)


def _number(claim: Claim, values: Sequence[float], level: float) -> Decision:
    printed, matters = claim.value or 0.0, claim.matters or 0.0
    if claim.scale == LOG:
        found = prediction_interval(np.log(values).tolist(), level)
        interval = Interval(math.exp(found.low), math.exp(found.high))
        ours, width = math.exp(float(np.mean(np.log(values)))), interval.high / interval.low
        wide, limit = f"its ends differ by a factor of {width:.3g}", f"{matters:g}"
    else:
        interval = prediction_interval(values, level)
        ours, width = float(np.mean(values)), interval.high - interval.low
        wide, limit = f"it is {compared(width)} wide", compared(matters)
    if printed not in interval:
        return Decision(
            Verdict.NOT_REPRODUCED, "outside the interval for one more run", ours, interval
        )
    if width > matters:
        why = f"within, but {wide}: {claim.fault} changes this by {limit}"
        return Decision(Verdict.INCONCLUSIVE, why, ours, interval)
    why = f"within; {claim.fault} would change this by {limit}"
    return Decision(Verdict.REPRODUCED, why, ours, interval)


def _statements(
    claims: Sequence[Claim], values: Mapping[str, np.ndarray], level: float
) -> dict[str, Decision]:
    """Decide on the statements of a source together; one without values has p = 1."""
    shown = {c.id: int((_signed(c, values[c.id]) >= 0).sum()) for c in claims if c.id in values}
    n = {claim.id: len(values[claim.id]) for claim in claims if claim.id in values}
    ps = [sign_test_p(shown[c.id], n[c.id]) if c.id in n else 1.0 for c in claims]
    against = [sign_test_p(n[c.id] - shown[c.id], n[c.id]) if c.id in n else 1.0 for c in claims]
    decisions = {}
    for claim, p, opposite, holds, fails in zip(
        claims, ps, against, holm(ps, level), holm(against, level), strict=True
    ):
        if claim.id not in n:
            continue
        verdict = (
            Verdict.REPRODUCED
            if holds
            else Verdict.NOT_REPRODUCED
            if fails
            else Verdict.INCONCLUSIVE
        )
        side = "at least" if claim.direction == "above" else "at most"
        why = (
            f"{side} {compared(claim.effect)} in {shown[claim.id]} of {n[claim.id]} runs,"
            f" sign test: p {p_value(opposite if fails else p)}"
        )
        decisions[claim.id] = Decision(verdict, why, float(np.median(values[claim.id])))
    return decisions


def _signed(claim: Claim, values: np.ndarray) -> np.ndarray:
    """How far each value is on the side of the statement."""
    sign = 1.0 if claim.direction == "above" else -1.0
    return sign * (values - claim.effect)


def _expected(claim: Claim, values: Sequence[float], seeds: Sequence[int]) -> Decision:
    odd = [seed for seed, value in zip(seeds, values, strict=True) if value != claim.value]
    ours = float(np.mean(values))
    if odd:
        why = (
            f"differs in {len(odd)} of {counted(len(values), 'run')}, such as that of seed {odd[0]}"
        )
        return Decision(Verdict.FAILED, why, ours)
    return Decision(Verdict.OK, f"in all {len(values)} runs", ours)


def _equivalence(claim: Claim, values: Sequence[float], margin: float) -> Decision:
    known = reference(claim.keys["mode"])
    interval = difference_interval(values, known.deviation, known.orders)
    ours, allowed = float(np.mean(values)), f"±{margin:g}"
    if -margin <= interval.low and interval.high <= margin:
        return Decision(Verdict.OK, f"the interval is within {allowed}", ours, interval)
    if interval.low > margin or interval.high < -margin:
        return Decision(Verdict.FAILED, f"the interval is outside {allowed}", ours, interval)
    return Decision(Verdict.UNCLEAR, f"the interval reaches beyond {allowed}", ours, interval)
