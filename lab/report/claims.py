"""The table of a source's claims: what it says, what was found here, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lab.report.tables import NONE, Table, between
from lab.report.verdicts import Band, Verdict
from lab.reproduce import numbers
from lab.reproduce.numbers import compared, mean_of_runs

_MARKS: Final = {"PASS": "✓", "OUTSIDE_BAND": "✗", "TOO_GOOD": "✗"}


def verdicts(found: Sequence[Verdict]) -> Table:
    """Source, ours and verdict, claim by claim."""
    return Table(
        (
            "~claim",
            "~counts as",
            "~stated in",
            ">source",
            ">ours, 95%",
            ">band of ours",
            "~verdict",
        ),
        tuple(tuple(_verdict(each)) for each in found),
    )


def notes(found: Sequence[Verdict]) -> list[str]:
    """A line for each limit: the first claim that has it, how many more do, and the limit."""
    limits: dict[str, list[str]] = {}
    for each in found:
        if each.note:
            limits.setdefault(each.note, []).append(each.words or each.claim)
    return [
        f"{claims[0]}{f' and {len(claims) - 1} more' * (len(claims) > 1)}: {limit}"
        for limit, claims in limits.items()
    ]


def _verdict(verdict: Verdict) -> Iterator[str]:
    yield verdict.words or verdict.claim
    yield verdict.group or NONE
    yield ": ".join(part for part in (verdict.source, verdict.where) if part) or NONE
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
    return f"{mean_of_runs(ours.mean, ours.low, ours.high, ours.n)}{runs}"


def _band(band: Band) -> str:
    if band.low is None or band.high is None:
        return between(band.low, band.high)
    return numbers.band(band.low, band.high)
