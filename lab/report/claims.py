"""The table of a source's claims: what it says, what was found here, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from lab.report.tables import NONE, Table, between
from lab.report.verdicts import Band, Verdict

_WHOLE: Final = 100  # from it on, a number that is compared has no decimals
_LEAST_RUNS: Final = 3  # of fewer no interval is of use, as `lab reproduce` has it
_MARKS: Final = {"PASS": "✓", "OUTSIDE_BAND": "✗", "TOO_GOOD": "✗"}


def verdicts(found: Sequence[Verdict]) -> Table:
    """Source, ours and verdict, claim by claim."""
    return Table(
        ("~claim", ">source", ">ours, 95%", ">band of ours", "~verdict"),
        tuple(tuple(_verdict(each)) for each in found),
    )


def _verdict(verdict: Verdict) -> Iterator[str]:
    yield verdict.words or verdict.claim
    yield _source(verdict)
    yield _ours(verdict)
    yield _band(verdict.band) if verdict.band else NONE
    said = f"{_MARKS.get(verdict.verdict, '?')} {verdict.verdict.replace('_', ' ').lower()}"
    yield f"{said}: {verdict.why}" if verdict.why else said


def _source(verdict: Verdict) -> str:
    value = verdict.source_value
    if value is None or isinstance(value, str):
        return value or NONE
    return compared(value)


def _ours(verdict: Verdict) -> str:
    ours = verdict.ours
    if ours is None or ours.mean is None:
        return NONE
    runs = "" if ours.n is None else f" (n = {ours.n})"
    is_spread = ours.n is None or ours.n >= _LEAST_RUNS
    if not is_spread or ours.low is None or ours.high is None or ours.low == ours.high:
        return f"{compared(ours.mean)}{runs}"
    half = (ours.high - ours.low) / 2
    wide = f"{half:,.0f}" if _is_whole(ours.mean) else f"{half:.4f}"
    return f"{compared(ours.mean)} ±{wide}{runs}"


def _band(band: Band) -> str:
    if band.low is None or band.high is None:
        return between(band.low, band.high)
    low, high = compared(band.low), compared(band.high)
    return low if low == high else f"{low}-{high}"


def compared(value: float) -> str:
    """Digits enough to compare, as `lab reproduce` has them: whole steps, shares to four places."""
    return f"{value:,.0f}" if _is_whole(value) else f"{value:.4f}"


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and (abs(value) >= _WHOLE or value == int(value))
