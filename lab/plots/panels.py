"""Common parts of the figures: panels, marks, legends, and lines: their styles and values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.plots.data import Mark, Trace, grouped
from lab.plots.style import (
    BLACK,
    ORANGE,
    LineStyle,
    legend,
    line_style,
    new_figure,
    safe_label,
    thousands,
)
from lab.statistics import Floats, mean_with_ci

_HATCH: Final = "////"
X_LABELS: Final = {
    "step": "global step (updates)",
    "seconds": "wall time (s)",
    "images": "images seen by all workers",
}
"""The columns of a trace's data that figures are drawn against, and their labels."""

MOST_POINTS: Final = 1500
"""The most points of a line that are drawn; more overlap, and are thinned."""

_FEWEST: Final = 15
"""The fewest records that are smoothed."""

_GRID: Final = 200
_BINS: Final = 60

_NO_LABEL: Final = "_"  # matplotlib leaves it out of the legend


def panels(
    height: float, rows: int = 1, columns: int = 1, *, share_y: bool = False
) -> tuple[Figure, list[Axes]]:
    """Create an empty figure, and its panels row by row.

    Args:
        height: In inches.
        rows: The number of rows of panels.
        columns: The number of panels in a row.
        share_y: Whether all panels share their y axis; panels of a column share their x axis.
    """
    figure = new_figure(height)
    axes = figure.subplots(rows, columns, squeeze=False, sharex="col", sharey=share_y)
    return figure, list(axes.flat)


def finish(figure: Figure, runs: Sequence[Trace], timed: Sequence[Axes]) -> Figure:
    """Draw the marks and the legend, after everything else.

    Args:
        figure: The figure with its panels.
        runs: The runs that it shows; only the marks of a single run are drawn.
        timed: The panels whose x axis is time.
    """
    for ax in timed if len(runs) == 1 else ():
        _draw_marks(ax, runs[0].marks)
    legend(figure, figure.axes[0].get_legend_handles_labels()[0])
    return figure


def label_x(ax: Axes, runs: Sequence[Trace], column: str, ticks: int) -> None:
    """Label the x axis of a panel against `column`, a key of `X_LABELS`, and begin it at 0."""
    ax.set_xlabel(runs[0].clock if column == "seconds" else X_LABELS[column])
    ax.set_xlim(left=0)
    thousands(ax, "x")
    ax.locator_params(axis="x", nbins=ticks)


def begin_at_zero(ax: Axes, runs: Sequence[Trace]) -> None:
    """Begin an axis of time at 0; for a single run, end it a little after the run's end."""
    ax.set_xlim(0, (runs[0].end * 1.02 or 1) if len(runs) == 1 else None)


def workers(run: Trace) -> list[tuple[str, LineStyle]]:
    """Each worker of a run with the style of its line."""
    return [(task, line_style(number)) for number, task in enumerate(run.workers)]


def groups(runs: Sequence[Trace]) -> Mapping[str, tuple[LineStyle, list[Trace]]]:
    """The line style and the runs of each group, in order of appearance."""
    return {name: (line_style(n), group) for n, (name, group) in enumerate(grouped(runs).items())}


def draw_groups(
    ax: Axes, runs: Sequence[Trace], curve: Callable[[Trace], tuple[Floats, Floats] | None]
) -> None:
    """Draw each run's line faintly, and each group's mean with its interval.

    Args:
        ax: The axes to draw on.
        runs: The runs.
        curve: Returns x, ascending, and y of a run; None if the run cannot be drawn.
    """
    for name, (style, group) in groups(runs).items():
        label = safe_label(name, 70)
        curves = [found for run in group if (found := curve(run)) is not None]
        mean = mean_curve(curves)
        for whole in curves:
            x, y = (axis[:: stride(len(axis))] for axis in whole)
            if mean is None:  # a single run, or runs with nothing in common
                ax.plot(x, y, color=style.colour, linestyle=style.line, label=label)
                label = _NO_LABEL
            else:
                ax.plot(x, y, color=style.colour, alpha=0.3, linewidth=0.8)
        if mean is not None:
            x, y, half = mean
            label = f"{label} (mean of {len(curves)})"
            ax.plot(x, y, color=style.colour, linestyle=style.line, label=label)
            ax.fill_between(x, y - half, y + half, color=style.colour, alpha=0.25, linewidth=0)


def _draw_marks(axes: Axes, marks: Sequence[Mark]) -> None:
    """Draw a dashed line at the begin of each mark, and a hatched span until its end."""
    limits = axes.get_xlim()  # they do not change
    for mark in marks:
        if mark.end is not None:
            axes.axvspan(
                mark.begin, mark.end, facecolor=ORANGE, alpha=0.22, hatch=_HATCH,
                edgecolor=ORANGE, zorder=0.4,
            )  # fmt: skip
        axes.axvline(mark.begin, color=BLACK, linewidth=1.2, linestyle=(0, (2, 2)))
    axes.set_xlim(limits)


def window_for(points: int) -> int:
    """The number of records in the smoothing window: 1/25 of them, at least 5, and odd.

    A few records are not smoothed: their window would contain most of them.
    """
    return max(5, points // 25 | 1) if points >= _FEWEST else 1


def smoothed(values: Floats) -> Floats:
    """The mean over each record and its neighbours, as many before it as after it.

    The window is centred, so that the line of a falling loss is not shifted. It grows from the
    first record on, so that the line begins at the first loss. At the end it is cut off, so that
    the last value is a mean, too.
    """
    window = window_for(len(values))
    found = pd.Series(values).rolling(window, center=True, min_periods=1).mean()
    for place in range(min(window // 2, len(values))):
        found.iloc[place] = np.mean(values[: 2 * place + 1])
    return np.asarray(found, np.float64)


def stride(points: int) -> int:
    """The step between drawn points: every n-th of `points` is drawn."""
    return max(1, math.ceil(points / MOST_POINTS))


def rates(seconds: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """How fast a count grows over time.

    Args:
        seconds: The time of each value, ascending.
        counts: The count; where it decreases, its highest value so far is used.

    Returns:
        The middle of each span, and the growth per second in it; empty if no time passes.
    """
    if len(seconds) < 2 or seconds[-1] <= seconds[0]:  # noqa: PLR2004
        return np.empty(0), np.empty(0)
    edges = np.linspace(seconds[0], seconds[-1], min(_BINS, len(seconds)) + 1)
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
