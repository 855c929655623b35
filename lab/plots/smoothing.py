"""Arithmetic behind lines: smoothing, thinning, rates, and several runs as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from lab.statistics import Floats, mean_with_ci

__all__ = ["Floats", "mean_curve", "rates", "smoothed", "stride", "window_for"]

MOST_POINTS: Final = 1500
"""More raw points than that of one line are thinned: each covers others anyway."""

_GRID: Final = 200
_BINS: Final = 60


def window_for(points: int) -> int:
    """Over how many records a line is smoothed: a twenty-fifth of them, 5 at least; odd."""
    return max(5, points // 25 | 1)


def smoothed(values: Floats) -> Floats:
    """The mean over each record and its neighbours; at the ends over as many as there are.

    As many lie before a record as behind it, so that the line of a loss that falls does not lag.
    """
    window = window_for(len(values))
    return np.asarray(
        pd.Series(values).rolling(window, center=True, min_periods=1).mean(), np.float64
    )


def stride(points: int) -> int:
    """Each how manieth of so many points is drawn."""
    return max(1, math.ceil(points / MOST_POINTS))


def rates(seconds: Floats, counts: Floats, bins: int = _BINS) -> tuple[Floats, Floats]:
    """How fast a count grows over time.

    Args:
        seconds: When each value was read, ascending.
        counts: The count; where it falls back, its highest value so far counts.
        bins: Into how many equal spans the time is cut at most; no more than there are values.

    Returns:
        The middle of each span, and the growth per second in it; empty where there is no time.
    """
    if len(seconds) < 2 or seconds[-1] <= seconds[0]:  # noqa: PLR2004
        return np.empty(0), np.empty(0)
    edges = np.linspace(seconds[0], seconds[-1], min(bins, len(seconds)) + 1)
    reached = np.interp(edges, seconds, np.maximum.accumulate(counts))
    return (edges[:-1] + edges[1:]) / 2, np.diff(reached) / np.diff(edges)


def mean_curve(curves: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats, Floats] | None:
    """Curves of several runs as one, where all of them have values.

    Args:
        curves: x, ascending, and y of each run.

    Returns:
        x, and of y mean and half of the interval; None where the runs have no x in common.
    """
    whole = [(x, y) for x, y in curves if len(x)]
    if len(whole) < 2 or len(whole) < len(curves):  # noqa: PLR2004
        return None
    low, high = max(x[0] for x, _ in whole), min(x[-1] for x, _ in whole)
    if low >= high:
        return None
    grid = np.linspace(low, high, _GRID)
    return (grid, *mean_with_ci([np.interp(grid, x, y) for x, y in whole]))
