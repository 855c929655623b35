"""Figures of runs beside those of a source, as a terminal and a page show them."""

from __future__ import annotations

import math
from typing import Final

from lab.numbers import fixed

LEAST_RUNS: Final = 3
"""Of fewer runs no spread can be told."""

_WHOLE: Final = 100


def compared(value: float) -> str:
    """Digits enough to compare: whole steps, shares and losses with four decimals."""
    return fixed(value, 0 if _is_whole(value) else 4)


def mean_of_runs(mean: float, low: float | None, high: float | None, runs: int | None) -> str:
    """A mean with half of its interval, where that tells something: `82,500 ±1,000`.

    Args:
        mean: The mean.
        low: The interval's lower end, or None.
        high: Its upper end, or None.
        runs: Over how many; None where that is not known.
    """
    few = runs is not None and runs < LEAST_RUNS
    if few or low is None or high is None or low == high:
        return compared(mean)
    half = (high - low) / 2
    return f"{compared(mean)} ±" + fixed(half, 0 if _is_whole(mean) else 4)


def band(low: float, high: float) -> str:
    """From low to high, or the one value that it has to be."""
    first, last = compared(low), compared(high)
    return first if first == last else f"{first}-{last}"


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and (abs(value) >= _WHOLE or value == int(value))
