"""The global step, and each worker's own steps, over time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.plots.data import Trace
from lab.plots.panels import (
    X_LABELS,
    begin_at_zero,
    draw_groups,
    finish,
    panels,
    workers,
)
from lab.plots.style import safe_label, settings, thousands
from lab.statistics import Floats

_MARKERS: Final = 12  # on each line


@settings()
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw steps over time: a line for each worker of one run, or for each of several runs.

    Returns:
        The figure; None if no record holds a step.
    """
    own = "a worker's own steps" if len(runs) == 1 else "own steps, a mean"
    total = speed_column(runs)
    labels = {total: X_LABELS["images"] if total == "seen" else "global step", "local_step": own}
    columns = [column for column in labels if any(len(run.values(column)) for run in runs)]
    if not columns:
        return None
    figure, axes = panels(4.6, 1, len(columns))
    for ax, column in zip(axes, columns, strict=True):
        if len(runs) == 1:
            _workers(ax, runs[0], column)
        else:
            draw_groups(ax, runs, partial(line_of, column=column))
        begin_at_zero(ax, runs)
        ax.set_ylim(bottom=0)
        ax.set(xlabel=runs[0].clock, ylabel=labels[column])
        thousands(ax)
        ax.locator_params(axis="x", nbins=6)
    return finish(figure, runs, axes)


def speed_column(runs: Sequence[Trace]) -> str:
    """The measure whose growth is the speed: images of several runs, if all of them have it.

    Updates of different experiments use different numbers of images.
    """
    trained = [run for run in runs if run.workers]
    has_images = all(len(run.values("seen")) for run in trained)
    return "seen" if len(runs) > 1 and trained and has_images else "global_step"


def line_of(run: Trace, column: str) -> tuple[Floats, Floats]:
    """A run's highest global step or images over time, or the workers' mean of their own steps."""
    seconds, counts = run.points("seconds", column)
    if column in {"global_step", "seen"} or not len(seconds):
        return seconds, np.maximum.accumulate(counts)
    own = (run.points("seconds", column, task) for task in run.workers)
    every = np.asarray(run.of(column)["seconds"], np.float64)
    return every, np.mean([np.interp(every, *each, left=0.0) for each in own if len(each[0])], 0)


def _workers(ax: Axes, run: Trace, column: str) -> None:
    for number, (task, style) in enumerate(workers(run)):
        x, y = run.points("seconds", column, task)
        spacing = max(1, len(x) // _MARKERS)
        ax.plot(
            x, y, color=style.colour, linestyle=style.line,
            marker=style.marker, markevery=(number * spacing // 4, spacing), markersize=6,
            linewidth=1.8, label=safe_label(task),
        )  # fmt: skip
