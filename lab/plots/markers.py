"""Draw faults, late starts and new starts on an axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.plots.data import Mark
from lab.plots.style import BLACK, ORANGE, safe_label

MOST: Final = 12
"""The most marks that are numbered: more numbers are not readable."""

_DESCRIPTIONS: Final = 6
_LETTERS: Final = 150
_ROWS: Final = 3
_HATCH: Final = "////"


def draw(axes: Axes, marks: Sequence[Mark], *, numbers: bool = True) -> None:
    """Draw marks: a line at the begin of each, and a hatched span until its end.

    Args:
        axes: The axes; x is in seconds of the run. The limits do not change.
        marks: The run's marks, in the order in which the report numbers them from 1.
        numbers: Whether to write each mark's number above the axes.
    """
    limits = axes.get_xlim()
    for number, mark in enumerate(marks, 1):
        if mark.end is not None:
            axes.axvspan(
                mark.begin,
                mark.end,
                facecolor=ORANGE,
                alpha=0.22,
                hatch=_HATCH,
                edgecolor=ORANGE,
                zorder=0.4,
            )
        axes.axvline(mark.begin, color=BLACK, linewidth=1.2, linestyle=(0, (2, 2)))
        if numbers and len(marks) <= MOST:
            # In rows of different heights, so that numbers at the same time do not overlap.
            axes.annotate(
                str(number),
                (mark.begin, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 9 + 17 * ((number - 1) % _ROWS)),
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=11,
                fontweight="bold",
                annotation_clip=True,
                arrowprops={"arrowstyle": "-", "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0},
                bbox={"boxstyle": "circle,pad=0.18", "facecolor": "white", "edgecolor": BLACK},
            )
    axes.set_xlim(limits)


def note(figure: Figure, marks: Sequence[Mark]) -> None:
    """Explain the marks below a figure, so that it can be used without the report."""
    if marks:
        lines = "\n".join(_lines(marks))
        figure.supxlabel(lines, x=0.01, ha="left", fontsize=11, linespacing=1.4)


def room(marks: Sequence[Mark]) -> float:
    """The height in inches of the numbers above a figure and the note below it."""
    return 0.23 * (min(len(marks), _ROWS) + len(_lines(marks))) if marks else 0.0


def _lines(marks: Sequence[Mark]) -> list[str]:
    if len(marks) > _DESCRIPTIONS:
        return ["Dashed: faults, late starts and new starts, in the order of the report's table."]
    return [
        f"{number}  {safe_label(f'{mark.task}, {mark.what}: {mark.text}', _LETTERS)}"
        for number, mark in enumerate(marks, 1)
    ]
