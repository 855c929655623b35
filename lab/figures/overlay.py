"""Several runs in one panel: each run's line faintly, and each group's mean with its interval."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from lab.figures.series import Floats, every, together
from lab.figures.style import look, plain
from lab.figures.trace import Trace, has_repeats

_NO_LABEL = "_"  # matplotlib leaves it out of the legend


def draw(ax: Axes, number: int, name: str, curves: Sequence[tuple[Floats, Floats]]) -> None:
    """Draw the runs of one group.

    Args:
        ax: Where to.
        number: Which group it is, from 0.
        name: What the legend calls it.
        curves: x, ascending, and y of each run.
    """
    style, label = look(number), plain(name, 70)
    mean = together(curves)
    for whole in curves:
        x, y = (axis[:: every(len(axis))] for axis in whole)
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


def read(runs: Sequence[Trace]) -> str:
    """How to read the lines of several runs, to follow other sentences."""
    if not has_repeats(runs):
        return " A line for each run."
    return (
        " Faint: each run; strong: the mean of a group's runs, as long as all of them train, with"
        " its 95% interval."
    )
