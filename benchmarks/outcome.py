"""What a measurement found, beside what it should find."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.pairs import Estimate


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should be: `at least 0.97`.

    Attributes:
        bound: `at least` or `at most`.
        value: The limit itself still meets it.
    """

    bound: Literal["at least", "at most"]
    value: float

    def holds(self, figure: float) -> bool:
        """Whether a figure meets it; one that is no number does not."""
        return figure >= self.value if self.bound == "at least" else figure <= self.value

    def verdict(self, found: Estimate) -> str:
        """`met` or `missed`, by the median; `narrowly` where the interval reaches past the limit.

        A narrow verdict is one that another measurement could turn.
        """
        met = self.holds(found.median)
        certain = self.holds(found.low) == met and self.holds(found.high) == met
        return ("met" if met else "missed") + ("" if certain else " narrowly")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One line of the table.

    Attributes:
        key: Its name in `results.json`; stays the same.
        what: What was measured, in words.
        unit: `ratio`, `s`, `records/s`; what `found` is in.
        target: What it should be.
        found: The figure with its interval; None where it could not be measured.
        how: How it was measured, in one or two sentences.
        why_not: Why it could not be measured; empty where it was.
        details: Further figures, by their name in words, as they are to be shown.
        raw: All values behind the figure, for whoever wants to compute anew.
        repeated: Whether the values repeat one thing. Where each is of another, they are no sample:
            their median has no interval, and by itself decides.
    """

    key: str
    what: str
    unit: str
    target: Target
    found: Estimate | None
    how: str
    why_not: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict)
    repeated: bool = True

    def verdict(self) -> str:
        """`met`, `met narrowly`, `missed narrowly`, `missed`, or `not measured`."""
        if self.found is None:
            return "not measured"
        if not self.repeated:
            return "met" if self.target.holds(self.found.median) else "missed"
        return self.target.verdict(self.found)

    def to_json(self) -> dict[str, Any]:
        """What `results.json` keeps; an end that is infinite becomes null."""
        found = self.found
        return {
            "what": self.what,
            "unit": self.unit,
            "target": {"bound": self.target.bound, "value": self.target.value},
            "verdict": self.verdict(),
            "median": found and found.median,
            "low": found and _finite(found.low),
            "high": found and _finite(found.high),
            "values": found and list(found.values),
            "how": self.how,
            "why_not": self.why_not,
            "details": dict(self.details),
            "raw": dict(self.raw),
            "repeated": self.repeated,
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
