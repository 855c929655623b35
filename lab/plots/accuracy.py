"""The accuracy on the test images against global steps and against time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from lab.plots.data import Trace, grouped
from lab.plots.panels import draw_groups, finish, groups, groups_caption, label_x, panels
from lab.plots.style import BLUE, settings
from lab.statistics import Floats

_READ: Final = (
    "Each point is a test of the shared parameters on all test images. Diamonds are the final"
    " parameters, after the last update."
)
_EXPERIMENT: Final = (
    "no program tested the parameters during the training; run async, sync, async-fast or sync-fast"
    " with --eval_every 500 to get the curve"
)
_OWN: Final = (
    "no two tests during the training are recorded; print a line for each, such as"
    " step 500, test accuracy 0.91"
)
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


def caption(runs: Sequence[Trace]) -> str:
    """How to read the figure."""
    return _READ if len(runs) == 1 else _READ + groups_caption(runs)


def missing(runs: Sequence[Trace]) -> str:
    """Return the final accuracies, and how to get the curve."""
    fix = _OWN if all(run.info.spec.own for run in runs) else _EXPERIMENT
    return "; ".join([*_ends(runs), fix])


def describe(runs: Sequence[Trace]) -> list[str]:
    """Describe the accuracies of these runs, a sentence each."""
    return [f"{end[:1].upper()}{end[1:]}." if len(runs) == 1 else f"{end}." for end in _ends(runs)]


def _ends(runs: Sequence[Trace]) -> list[str]:
    """Return the accuracy at the end of one run, or of each group's runs with a result."""
    found = []
    for name, group in grouped(runs).items():
        counted = group if len(runs) == 1 else [run for run in group if run.has_result]
        ends = [end for run in counted if (end := _end(run)) is not None]
        if ends:
            subject = f"{name}: the" if len(runs) > 1 else "the"
            found.append(f"{subject} accuracy at the end is {np.mean(ends):.1%}")
    return found


def _curve(run: Trace, column: str) -> tuple[Floats, Floats]:
    """Return the values of `column` and the accuracies of the tests, sorted by `column`."""
    tests = run.evaluations.dropna(subset=[column, "accuracy"]).sort_values(column, kind="stable")
    return np.asarray(tests[column], np.float64), np.asarray(tests["accuracy"], np.float64)


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


def _end(run: Trace) -> float | None:
    """Return the accuracy of the final parameters, or of the last test; None without a test.

    The workers of all-reduce programs test equal copies of the parameters.
    """
    last = _final(run) if run.evaluations["is_final"].any() else run.evaluations.tail(1)
    if len(last):
        return float(last["accuracy"].iloc[0])
    of_workers = {task.accuracy for task in run.tasks if task.accuracy is not None}
    return of_workers.pop() if len(of_workers) == 1 else None


def _has_curve(run: Trace) -> bool:
    """Whether a task tested the parameters more than once, the final ones excepted."""
    counts = run.evaluations[~run.evaluations["is_final"]].groupby("task").size()
    return bool((counts > 1).any())
