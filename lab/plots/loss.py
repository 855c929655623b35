"""The loss against global steps, against time, and against images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

from lab.plots.data import Trace
from lab.plots.panels import (
    X_LABELS,
    draw_groups,
    finish,
    label_x,
    panels,
    smoothed,
    stride,
    workers,
)
from lab.plots.style import BLACK, LineStyle, line_style, logarithmic, safe_label, settings
from lab.statistics import Floats

_FEW: Final = 40  # a line with fewer points has a marker at each
_MANY: Final = 300  # from this number on, a worker's points overlap and are drawn small and pale
_SPREAD: Final = 4  # a loss that changes by a larger factor is drawn on a logarithmic axis


@settings()
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw the loss: a line for each model of one run, or for each of several runs.

    Workers that train one model have one line, and points of their own.

    Args:
        runs: At least one.

    Returns:
        The figure; None if no record holds a loss.
    """
    columns = _drawn(runs)
    if not columns:
        return None
    figure, axes = panels(4.8, 1, len(columns), share_y=True)
    for ax, column in zip(axes, columns, strict=True):
        if len(runs) == 1:
            _one(ax, runs[0], column)
        else:
            draw_groups(ax, runs, partial(_pooled, column=column))
        label_x(ax, runs, column, 4)
    is_own = any(run.info.spec.own for run in runs)
    axes[0].set_ylabel("loss" if is_own else "loss of a batch (cross entropy)")
    if _is_steep(runs):
        logarithmic(axes[0])
        # From the lines: the interval of a mean may reach 0, which a logarithmic axis lacks.
        drawn = np.concatenate(
            [np.asarray(line.get_ydata(), float) for ax in axes for line in ax.get_lines()]
        )
        axes[0].set_ylim(0.85 * np.nanmin(drawn), 1.15 * np.nanmax(drawn))
    timed = [ax for ax, column in zip(axes, columns, strict=True) if column == "seconds"]
    return finish(figure, runs, timed)


def _drawn(runs: Sequence[Trace]) -> list[str]:
    """Return the columns that the loss can be drawn against."""
    return [each for each in X_LABELS if any(len(run.points(each, "loss")[0]) for run in runs)]


def _pooled(run: Trace, column: str) -> tuple[Floats, Floats]:
    """The smoothed loss of all workers; losses with the same x are replaced by their mean."""
    x, y = run.points(column, "loss")
    moments, places = np.unique(x, return_inverse=True)
    if not len(moments):
        return x, y
    return moments, smoothed(np.bincount(places, y) / np.bincount(places))


def _one(ax: Axes, run: Trace, column: str) -> None:
    """Draw the points of each worker, and a line for each model."""
    for task, style in workers(run):
        x, y = run.points(column, "loss", task)
        _dots(ax, x, y, style, safe_label(task) if run.is_of_one_model else "_points")
        if not run.is_of_one_model:
            _line(ax, x, smoothed(y), style, safe_label(task))
    if run.is_of_one_model:
        _line(ax, *_pooled(run, column), replace(line_style(0), colour=BLACK), "all workers")


def _dots(ax: Axes, x: Floats, y: Floats, style: LineStyle, label: str) -> None:
    step = stride(len(x))
    shown = len(x[::step])
    # Many points are drawn small and pale, and the line gets a white rim, to stay visible.
    size, alpha = (6.0, 0.4) if shown < _MANY else (3.0, max(0.12, 0.4 * _MANY / shown))
    ax.plot(
        x[::step], y[::step], linestyle="", marker=".", markersize=size, color=style.colour,
        alpha=alpha, markeredgewidth=0, rasterized=True, zorder=1.8, label=label,
    )  # fmt: skip


def _line(ax: Axes, x: Floats, y: Floats, style: LineStyle, label: str) -> None:
    step = stride(len(x))
    marker = style.marker if len(x) < _FEW else ""
    ax.plot(
        x[::step], y[::step], color=style.colour, linestyle=style.line, marker=marker,
        markersize=5, label=label, path_effects=[Stroke(linewidth=4, foreground="white"), Normal()],
    )  # fmt: skip


def _is_steep(runs: Sequence[Trace]) -> bool:
    losses = np.concatenate([run.values("loss") for run in runs])
    return bool((losses > 0).all() and losses.max() > _SPREAD * losses.min())
