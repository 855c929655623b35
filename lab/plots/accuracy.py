"""The accuracy on the test images against global steps and against time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from lab.plots.data import Trace
from lab.plots.panels import draw_groups, finish, groups, label_x, panels
from lab.plots.style import BLUE, settings
from lab.statistics import Floats

_COLUMNS: Final = ("step", "seconds")


@settings()
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw the tests during the training as lines, and the final parameters as diamonds.

    Returns:
        The figure; None if no run has tests during the training.
    """
    if not any(_has_curve(run) for run in runs):
        return None
    columns = [name for name in _COLUMNS if any(len(_curve(run, name)[0]) for run in runs)]
    figure, axes = panels(4.6, 1, len(columns), share_y=True)
    for ax, column in zip(axes, columns, strict=True):
        if len(runs) == 1:
            x, y = _curve(runs[0], column)
            ax.plot(x, y, color=BLUE, marker="o", markersize=5, label="tests")
        else:
            draw_groups(ax, runs, partial(_curve, column=column))
        _diamonds(ax, runs, column)
        label_x(ax, runs, column, 5)
    axes[0].set_ylabel("accuracy")
    axes[0].yaxis.set_major_formatter(PercentFormatter(1))
    timed = [ax for ax, column in zip(axes, columns, strict=True) if column == "seconds"]
    return finish(figure, runs, timed)


def _curve(run: Trace, column: str) -> tuple[Floats, Floats]:
    return run.points(column, "accuracy")


def _diamonds(ax: Axes, runs: Sequence[Trace], column: str) -> None:
    """Mark the final parameters of each run."""
    label = "final parameters"
    for style, group in groups(runs).values():
        finals = (run.of("final_accuracy").tail(1) for run in group)
        for final in finals:
            if final.empty:  # matplotlib cannot place an empty line that is not clipped
                continue
            ax.plot(
                final[column], final["value"], linestyle="", marker="D", markersize=9,
                markerfacecolor="white", markeredgecolor=style.colour, markeredgewidth=2,
                label=label if len(runs) == 1 else "_", zorder=4, clip_on=False,
            )  # fmt: skip


def _has_curve(run: Trace) -> bool:
    """Whether a task tested the parameters more than once, the final ones excepted."""
    tests, final = (run.of(name)["task"].value_counts() for name in ("accuracy", "final_accuracy"))
    return bool((tests.sub(final, fill_value=0) > 1).any())
