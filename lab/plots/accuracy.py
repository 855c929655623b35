"""The accuracy on the test images against global steps and against time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from lab.plots.data import Trace, points
from lab.plots.panels import draw_groups, finish, groups, label_x, panels
from lab.plots.style import BLUE, settings
from lab.statistics import Floats

_COLUMNS: Final = ("global_step", "seconds")


@settings()
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw the tests during the training as lines, and the final parameters as diamonds.

    Returns:
        The figure; None if no run has tests during the training.
    """
    if not any(_has_curve(run) for run in runs):
        return None
    columns = [
        name for name in _COLUMNS if any(run.evaluations[name].notna().any() for run in runs)
    ]
    figure, axes = panels(runs, 4.6, 1, len(columns), share_y=True)
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
    """Return the values of `column` and the accuracies of the tests, sorted by `column`."""
    return points(run.evaluations, column, "accuracy")


def _diamonds(ax: Axes, runs: Sequence[Trace], column: str) -> None:
    """Mark the final parameters of each run."""
    label = "final parameters"
    for style, group in groups(runs).values():
        for run in (each for each in group if len(_final(each))):
            final = _final(run)
            ax.plot(
                final[column], final["accuracy"], linestyle="", marker="D", markersize=9,
                markerfacecolor="white", markeredgecolor=style.colour, markeredgewidth=2,
                label=label if len(runs) == 1 and len(final) else "_", zorder=4, clip_on=False,
            )  # fmt: skip


def _final(run: Trace) -> pd.DataFrame:
    return run.evaluations[run.evaluations["is_final"]].tail(1)


def _has_curve(run: Trace) -> bool:
    """Whether a task tested the parameters more than once, the final ones excepted."""
    counts = run.evaluations[~run.evaluations["is_final"]].groupby("task").size()
    return bool((counts > 1).any())
