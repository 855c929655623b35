"""How figures look: colours that everybody can tell apart, and letters that carry across a room."""

from __future__ import annotations

import io
import logging
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
from lab.task.text import clipped

# The palette by M. Okabe and K. Ito, "Color Universal Design" (2008), without its yellow, which a
# projector loses on white.
BLUE: Final = "#0072b2"
VERMILION: Final = "#d55e00"
GREEN: Final = "#009e73"
PURPLE: Final = "#cc79a7"
ORANGE: Final = "#e69f00"
SKY: Final = "#56b4e9"
BLACK: Final = "#000000"
GREY: Final = "#8c8c8c"
PALE: Final = "#e4e4e4"

_COLOURS: Final = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
_LINES: Final = ("-", "--", "-.", ":")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")

WIDE: Final = 12.0
"""Inches across: at the width of the page's column, about 100 pixels each."""

_DECADES: Final = 30  # from the lowest to the highest number of an axis that holds many
_LETTERS: Final = 125  # of a legend, side by side
_HANDLE: Final = 8  # so many letters a line with its gap is wide
_DPI: Final = 200  # twice as many pixels as the page shows, for sharp screens and for paper

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
    # Names and texts of a run may hold dollar signs, which begin no formula.
    "text.parse_math": False,
    "svg.hashsalt": "lab",
    "hatch.linewidth": 0.6,
}


@dataclass(frozen=True, slots=True)
class LineStyle:
    """What a line looks like; its style and marker tell it apart where its colour does not."""

    colour: str
    line: str
    marker: str


def line_style(number: int) -> LineStyle:
    """The look of the worker, or of the group of runs, with this number: 28 different ones."""
    return LineStyle(
        _COLOURS[number % len(_COLOURS)],
        _LINES[number % len(_LINES)],
        _MARKERS[number % len(_MARKERS)],
    )


@contextmanager
def settings() -> Iterator[None]:
    """The defaults of matplotlib, and ours, whatever a matplotlibrc of the user's says.

    `@settings()` has a function draw with them.
    """
    # It would say on stderr that it makes its list of fonts, and which letters they lack.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    every: Any = {**cast("dict[str, Any]", mpl.rcParamsDefault), **_SETTINGS}
    with mpl.rc_context(every), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(height: float, width: float = WIDE) -> Figure:
    """An empty figure of so many inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """A legend above the figure, in as many columns as its labels leave room for."""
    longest = max((len(str(each.get_label())) for each in handles), default=0)
    columns = max(1, min(len(handles), 5, _LETTERS // (longest + _HANDLE)))
    figure.legend(handles=list(handles), loc="outside upper center", ncols=columns)


def png(figure: Figure, software: str | None = None) -> bytes:
    """The figure as a PNG; the same figure gives the same bytes."""
    return _saved(figure, "png", {"Software": software}, dpi=_DPI)


def svg(figure: Figure) -> bytes:
    """The figure as an SVG; the same figure gives the same bytes."""
    return _saved(figure, "svg", {"Date": None, "Creator": CREATOR}, dpi=_DPI)


def _saved(figure: Figure, form: str, metadata: dict[str, str | None], dpi: int) -> bytes:
    data = io.BytesIO()
    with settings():
        figure.savefig(data, format=form, dpi=dpi, metadata=metadata)
    return data.getvalue()


def safe_label(text: str, limit: int = 40) -> str:
    """A text of a run's as a label: no control characters, and not too long."""
    cut = clipped(text, limit)
    # A label that begins with an underscore would be left out of the legend.
    return f" {cut}" if cut.startswith("_") else cut


def logarithmic(axes: Axes) -> None:
    """A logarithmic y axis whose numbers are written out."""
    axes.set_yscale("log")
    # matplotlib would write them as formulas.
    for set_form in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        set_form(lambda value, _place: _label(value, *axes.get_ylim()))
    axes.grid(visible=True, which="minor", axis="y", color=PALE, linewidth=0.5)


def _counted(value: float) -> str:
    return f"{value / 1e6:,.6g} M" if abs(value) >= 1e6 else f"{value:,.10g}"  # noqa: PLR2004


def _label(value: float, low: float, high: float) -> str:
    """The number; where the axis holds many, only those whose first digit is one of few."""
    wanted = "123457" if high < _DECADES * low else "125"
    return f"{value:g}" if f"{value:.0e}"[0] in wanted else ""


def thousands(axes: Axes, which: str = "both") -> None:
    """Numbers of many digits get a comma for each thousand; millions are written with an M."""
    for name in ("x", "y") if which == "both" else (which,):
        axis = getattr(axes, f"{name}axis")
        axis.set_major_formatter(lambda value, _place: _counted(value))
