"""Common parts of the figures: their style, panels, marks, legends, and the values of lines.

The colours are safe for colour-blind people, and the letters large enough for a projector.
"""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lab.base.statistics import Floats, mean_with_ci
from lab.base.text import clipped
from lab.study.plots.data import Mark, Trace, grouped

# The palette by M. Okabe and K. Ito, "Color Universal Design" (2008), without its yellow, which is
# not visible on a projector's white.
BLUE: Final = "#0072b2"
VERMILION: Final = "#d55e00"
GREEN: Final = "#009e73"
PURPLE: Final = "#cc79a7"
ORANGE: Final = "#e69f00"
SKY: Final = "#56b4e9"
BLACK: Final = "#000000"
PALE: Final = "#e4e4e4"

_COLOURS: Final = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
_LINES: Final = ("-", "--", "-.", ":")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")

WIDE: Final = 12.0
"""The width of a figure in inches; in the report an inch is about 100 pixels."""

_DECADES: Final = 30  # an axis with a larger ratio of its limits labels fewer numbers
_LETTERS: Final = 125  # the width of a legend, in letters
_HANDLE: Final = 8  # the width of a legend's line with its gap, in letters
_ROOM: Final = 3  # the lines of a legend for which a figure has room
_LEGEND_LINE: Final = 0.24  # the height of another one, in inches
_DPI: Final = 200  # twice the pixels of the report, for high-resolution screens and printing

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

_SETTINGS: Final[dict[str, Any]] = {
    "font.size": 13,
    "axes.titlesize": 14,
    "axes.labelsize": 13,
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
    "legend.fontsize": 12,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": PALE,
    "lines.linewidth": 2.2,
    "figure.facecolor": "white",
    # Names and texts of a run may contain dollar signs; they are no formulas.
    "text.parse_math": False,
    "svg.hashsalt": "lab",
    "hatch.linewidth": 0.6,
}


@dataclass(frozen=True, slots=True)
class LineStyle:
    """The style of a line; it can be distinguished without its colour, too."""

    colour: str
    line: str
    marker: str


def line_style(number: int) -> LineStyle:
    """The style of the worker or group of runs with this number; there are 28 styles."""
    return LineStyle(
        _COLOURS[number % len(_COLOURS)],
        _LINES[number % len(_LINES)],
        _MARKERS[number % len(_MARKERS)],
    )


@contextmanager
def settings() -> Iterator[None]:
    """Set matplotlib's defaults and ours, and ignore the user's matplotlibrc.

    Use it as the decorator `@settings()` of a function that draws.
    """
    # Otherwise matplotlib reports on stderr that it builds its font list, and missing glyphs.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    every: Any = {**cast("dict[str, Any]", mpl.rcParamsDefault), **_SETTINGS}
    with mpl.rc_context(every), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


class NotebookFigure(Figure):
    """A figure that a notebook shows as an image without `pyplot`."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return the image and its width in pixels, which is that in the report."""
        return png(self), {"width": round(100 * self.get_figwidth())}


def new_figure(height: float) -> Figure:
    """Create an empty figure of a height in inches."""
    figure = NotebookFigure(figsize=(WIDE, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Draw a legend above the figure, with as many columns as fit."""
    longest = max((len(str(each.get_label())) for each in handles), default=0)
    columns = max(1, min(len(handles), 5, _LETTERS // (longest + _HANDLE)))
    figure.legend(handles=list(handles), loc="outside upper center", ncols=columns)
    # A long legend takes its room from the page, not from the panels.
    more = max(0, math.ceil(len(handles) / columns) - _ROOM)
    figure.set_figheight(figure.get_figheight() + more * _LEGEND_LINE)


def png(figure: Figure) -> bytes:
    """The figure as a PNG; the same figure gives the same bytes."""
    return _saved(figure, "png", {"Software": None})


def svg(figure: Figure) -> bytes:
    """The figure as an SVG; the same figure gives the same bytes."""
    return _saved(figure, "svg", {"Date": None, "Creator": "lab"})


def _saved(figure: Figure, form: str, metadata: dict[str, str | None]) -> bytes:
    data = io.BytesIO()
    with settings():
        figure.savefig(data, format=form, dpi=_DPI, metadata=metadata)
    return data.getvalue()


def safe_label(text: str, limit: int = 40) -> str:
    """A text of a run as a label: no control characters, and at most `limit` characters."""
    cut = clipped(text, limit)
    # matplotlib leaves a label that begins with an underscore out of the legend.
    return f" {cut}" if cut.startswith("_") else cut


def logarithmic(axes: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers as labels."""
    axes.set_yscale("log")
    # By default matplotlib writes powers of 10.
    for set_form in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        set_form(lambda value, _place: _label(value, *axes.get_ylim()))
    axes.grid(visible=True, which="minor", axis="y", color=PALE, linewidth=0.5)


def _label(value: float, low: float, high: float) -> str:
    """A number as a label; empty if numbers with its first digit are not labelled."""
    wanted = "123457" if high < _DECADES * low else "125"
    return f"{value:g}" if f"{value:.0e}"[0] in wanted else ""


def thousands(axes: Axes, which: str = "both") -> None:
    """Write the axis' numbers with a comma for each thousand."""
    for name in ("x", "y") if which == "both" else (which,):
        getattr(axes, f"{name}axis").set_major_formatter("{x:,.10g}")


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
