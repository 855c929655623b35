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
  NumPy reference is OK if the interval of its mean is within the margin (two one-sided tests). If
  one has FAILED, no claim on the same runs is REPRODUCED.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lab.formatting import compared, counted, p_value
from lab.reproduce import measures
from lab.reproduce.claims import ABOVE, COUNTED, LOG, Claim, Kind, Source
from lab.reproduce.measures import reference
from lab.reproduce.runs import Chosen
from lab.statistics import (
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


Values = Mapping[int, float | None]
"""The value of each run by its seed; None: the run does not have it."""


class _Ruling(NamedTuple):
    """A verdict, its reason in a line, and the interval that was computed for it."""

    verdict: Verdict
    why: str
    interval: Interval | None = None


def judge(source: Source, runs: Chosen) -> list[Result]:
    """Decide on every claim of a source.

    Args:
        source: The source.
        runs: The runs that claims may use, by role and seed.
    """
    return decide(source, {claim.id: measures.values(claim, runs) for claim in source.claims})


def decide(source: Source, values: Mapping[str, Values]) -> list[Result]:
    """Decide on every claim by the values of its runs."""
    claims = source.claims
    level = SOURCE_LEVEL / max(sum(claim.kind in COUNTED for claim in claims), 1)
    rulings = {
        claim.id: _lacking(claim, source.recipes[claim.role].runs, values[claim.id])
        for claim in claims
    }
    known = {
        claim.id: {seed: value for seed, value in values[claim.id].items() if value is not None}
        for claim in claims
    }
    complete = {name: list(known[name].values()) for name, lacks in rulings.items() if not lacks}
    rulings |= _statements([c for c in claims if c.kind == "qualitative"], complete, level)
    decided = {c.id: rulings[c.id] or _single(c, complete[c.id], level) for c in claims}
    failed = {c.role: c.id for c in claims if decided[c.id].verdict is Verdict.FAILED}
    return [_result(c, known[c.id], decided[c.id], failed.get(c.role)) for c in claims]


def _result(
    claim: Claim, values: Mapping[int, float], ruling: _Ruling, failed: str | None
) -> Result:
    """The result of a claim; `failed` is a setting or check that its runs do not have."""
    verdict, why, interval = ruling
    if failed is not None and verdict is Verdict.REPRODUCED:
        verdict = Verdict.INCONCLUSIVE
        why = f"its runs are not those of the source: {failed} FAILED"
    return Result(
        claim.id, claim.text, claim.kind, claim.where, claim.value,
        _middle(claim, list(values.values())), interval, claim.unit, values, verdict, why,
    )  # fmt: skip


def _middle(claim: Claim, values: Sequence[float]) -> float | None:
    if not values or not np.isfinite(values).all():
        return None
    if claim.kind == "qualitative":
        return float(np.median(values))
    return float(np.exp(np.mean(np.log(values))) if claim.scale == LOG else np.mean(values))


def _lacking(claim: Claim, wanted: int, values: Values) -> _Ruling | None:
    """The ruling if values are lacking; None: there are as many as the claim file asks for."""
    is_own = claim.kind not in {"measured", "fitted", "qualitative"}
    unclear = Verdict.UNCLEAR if is_own else Verdict.INCONCLUSIVE
    for seed, value in values.items():
        if value is None:
            return _Ruling(unclear, f"the run of seed {seed} did not record this value")
    for seed, value in values.items():
        if not math.isfinite(value or 0):
            return _Ruling(unclear, f"the value of seed {seed} is not finite")
    # One run is enough to see that a setting differs.
    if len(values) < (1 if is_own and claim.margin is None else wanted):
        return _Ruling(unclear, f"{len(values)} of {counted(wanted, 'run')}")
    return None


def _single(claim: Claim, values: Sequence[float], level: float) -> _Ruling:
    if claim.margin is not None:
        return _equivalence(claim, values, claim.margin)
    if claim.kind in {"measured", "fitted"}:
        return _number(claim, values, level)
    odd, runs = sum(value != claim.value for value in values), counted(len(values), "run")
    if odd:
        return _Ruling(Verdict.FAILED, f"differs in {odd} of {runs}")
    return _Ruling(Verdict.OK, f"in {len(values)} of {runs}")


def _number(claim: Claim, values: Sequence[float], level: float) -> _Ruling:
    printed, matters = claim.value or 0.0, claim.matters or 0.0
    if claim.scale == LOG:
        logs = prediction_interval(np.log(values).tolist(), level)
        interval = Interval(math.exp(logs.low), math.exp(logs.high))
        width, wide, by = interval.high / interval.low, "its ends differ by {}", "a factor of "
    else:
        interval = prediction_interval(values, level)
        width, wide, by = interval.high - interval.low, "it is {} wide", ""
    if printed not in interval:
        why = "outside the interval for one more run"
        return _Ruling(Verdict.NOT_REPRODUCED, why, interval)
    effect = f"{claim.fault} would change this by {by}{compared(matters)}"
    if width > matters:
        why = f"within, but {wide.format(by + compared(width))}, and {effect}"
        return _Ruling(Verdict.INCONCLUSIVE, why, interval)
    return _Ruling(Verdict.REPRODUCED, f"within; {effect}", interval)


def _statements(
    claims: Sequence[Claim], values: Mapping[str, Sequence[float]], level: float
) -> dict[str, _Ruling]:
    """Decide on the statements of a source that have values; one without values has p = 1.

    Args:
        claims: The statements.
        values: The values of each claim that has all of them.
        level: The level of one claim of the source.
    """
    runs = [len(values.get(claim.id, ())) for claim in claims]
    shown = [sum(_is_shown(claim, value) for value in values.get(claim.id, ())) for claim in claims]
    ps = [sign_test_p(some, every) for some, every in zip(shown, runs, strict=True)]
    opposites = [sign_test_p(every - some, every) for some, every in zip(shown, runs, strict=True)]
    holds, fails = (holm(each, level * len(claims)) for each in (ps, opposites))
    rulings: dict[str, _Ruling] = {}
    for i, claim in enumerate(claims):
        verdict = Verdict.NOT_REPRODUCED if fails[i] else Verdict.INCONCLUSIVE
        verdict = Verdict.REPRODUCED if holds[i] else verdict
        side = "at least" if claim.direction == ABOVE else "at most"
        p = p_value(opposites[i] if fails[i] else ps[i])
        why = f"{side} {compared(claim.effect)} in {shown[i]} of {runs[i]} runs, sign test: p {p}"
        if runs[i]:
            rulings[claim.id] = _Ruling(verdict, why)
    return rulings


def _is_shown(claim: Claim, value: float) -> bool:
    return value >= claim.effect if claim.direction == ABOVE else value <= claim.effect


def _equivalence(claim: Claim, values: Sequence[float], margin: float) -> _Ruling:
    by_order = reference(claim.keys["mode"]).mean(axis=1)
    interval = difference_interval(values, float(by_order.std()), len(by_order))
    if -margin <= interval.low and interval.high <= margin:
        return _Ruling(Verdict.OK, f"the interval is within ±{margin:g}", interval)
    if interval.low > margin or interval.high < -margin:
        return _Ruling(Verdict.FAILED, f"the interval is outside ±{margin:g}", interval)
    return _Ruling(Verdict.UNCLEAR, f"the interval reaches beyond ±{margin:g}", interval)
