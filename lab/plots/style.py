"""The style of the figures: colour-blind safe colours, and letters large enough for a projector."""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lab.plots import CREATOR
from lab.text import clipped

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


def new_figure(height: float, width: float = WIDE) -> Figure:
    """Create an empty figure; its height and width are in inches."""
    figure = NotebookFigure(figsize=(width, height), layout="constrained")
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
    return _saved(figure, "svg", {"Date": None, "Creator": CREATOR})


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
