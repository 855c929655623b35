"""The result of a measurement, and its target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.pairs import Estimate


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a figure: `at least 0.97`.

    Attributes:
        bound: `at least` or `at most`.
        value: The limit, which itself meets the target.
    """

    bound: Literal["at least", "at most"]
    value: float

    def holds(self, figure: float) -> bool:
        """Whether a figure meets the target; NaN does not."""
        return figure >= self.value if self.bound == "at least" else figure <= self.value

    def verdict(self, found: Estimate) -> str:
        """Return `met` or `missed`, by the median; with `narrowly` if the limit is in the interval.

        Another measurement could reverse a narrow verdict.
        """
        met = self.holds(found.median)
        certain = self.holds(found.low) == met and self.holds(found.high) == met
        return ("met" if met else "missed") + ("" if certain else " narrowly")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of the table.

    Attributes:
        key: Its key in `results.json`, which does not change.
        what: The name of the figure in the table.
        unit: The unit of `found`: `ratio`, `s`, `records/s`.
        target: The target.
        found: The figure with its interval; None if it could not be measured.
        how: A description of the measurement, in one or two sentences.
        why_not: The reason why there is no figure; empty if there is one.
        details: Further figures, by name, as formatted texts.
        raw: All values of which the figure is computed.
        repeated: Whether the values repeat one measurement. Values of different things are no
            sample: their median has no interval, and only the median decides.
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
        """Return `met`, `met narrowly`, `missed narrowly`, `missed`, or `not measured`."""
        if self.found is None:
            return "not measured"
        if not self.repeated:
            return "met" if self.target.holds(self.found.median) else "missed"
        return self.target.verdict(self.found)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of `results.json`; an infinite end becomes null."""
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
