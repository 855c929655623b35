"""What a test of a claim is given, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.reproduce.figures import RunFigures

Runs = Mapping[str, Sequence[RunFigures]]
"""Role to its runs that have succeeded."""


@dataclass(frozen=True, slots=True)
class Test:
    """What a test over runs came to.

    Attributes:
        passed: Whether the claim holds; None: too few runs, or records, to say so.
        why: The statistic, the test and its p, in a line.
    """

    passed: bool | None
    why: str


def shown(p: float) -> str:
    """A p-value to three digits, so that it can be told from the limit beside it."""
    return f"{p:.3g}" if p >= 0.0001 else "< 0.0001"  # noqa: PLR2004
