"""Compute lines: smoothing, thinning, rates, and the mean of several runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from lab.statistics import Floats, mean_with_ci

__all__ = ["Floats", "mean_curve", "rates", "smoothed", "stride", "window_for"]

MOST_POINTS: Final = 1500
"""The most points of a line that are drawn; more overlap, and are thinned."""

_FEWEST: Final = 15
"""The fewest records that are smoothed."""

_GRID: Final = 200
_BINS: Final = 60


def window_for(points: int) -> int:
    """The number of records in the smoothing window: 1/25 of them, at least 5, and odd.

    A few records are not smoothed: their window would contain most of them.
    """
    return max(5, points // 25 | 1) if points >= _FEWEST else 1


def smoothed(values: Floats) -> Floats:
    """The mean over each record and its neighbours; the window is cut off at the ends.

    The window is centred, so that the line of a falling loss is not shifted.
    """
    window = window_for(len(values))
    return np.asarray(
        pd.Series(values).rolling(window, center=True, min_periods=1).mean(), np.float64
    )


def stride(points: int) -> int:
    """The step between drawn points: every n-th of `points` is drawn."""
    return max(1, math.ceil(points / MOST_POINTS))


def rates(seconds: Floats, counts: Floats, bins: int = _BINS) -> tuple[Floats, Floats]:
    """How fast a count grows over time.

    Args:
        seconds: The time of each value, ascending.
        counts: The count; where it decreases, its highest value so far is used.
        bins: The most equal spans into which the time is divided; never more than values.

    Returns:
        The middle of each span, and the growth per second in it; empty if no time passes.
    """
    if len(seconds) < 2 or seconds[-1] <= seconds[0]:  # noqa: PLR2004
        return np.empty(0), np.empty(0)
    edges = np.linspace(seconds[0], seconds[-1], min(bins, len(seconds)) + 1)
    reached = np.interp(edges, seconds, np.maximum.accumulate(counts))
    return (edges[:-1] + edges[1:]) / 2, np.diff(reached) / np.diff(edges)


def mean_curve(curves: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats, Floats] | None:
    """The mean of several runs' curves, over the x that all of them cover.

    Args:
        curves: x, ascending, and y of each run.

    Returns:
        x, the mean of y, and half of its interval; None if the runs have no x in common.
    """
    whole = [(x, y) for x, y in curves if len(x)]
    if len(whole) < 2 or len(whole) < len(curves):  # noqa: PLR2004
        return None
    low, high = max(x[0] for x, _ in whole), min(x[-1] for x, _ in whole)
    if low >= high:
        return None
    grid = np.linspace(low, high, _GRID)
    return (grid, *mean_with_ci([np.interp(grid, x, y) for x, y in whole]))
