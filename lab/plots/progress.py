"""The global step, and each worker's own steps, over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.plots.data import Trace, first_step, grouped
from lab.plots.panels import (
    X_LABELS,
    begin_at_zero,
    draw_groups,
    finish,
    groups,
    groups_caption,
    panels,
    workers,
)
from lab.plots.style import safe_label, settings, thousands
from lab.statistics import Floats

_READ_ONE: Final = (
    "The global step counts the updates of all workers, so the workers' lines coincide. Their slope"
    " is the speed of all workers together. The other panel counts each worker's own steps: the"
    " line of a slow, late or stopped worker leaves the others."
)
_READ_SEVERAL: Final = (
    "The slope of a line is the speed. A step of asynchronous training is an update by one worker."
    " A step of synchronous training uses a gradient of each worker, so the runs are compared by"
    " images."
)
_MARKERS: Final = 12  # on each line
_TOGETHER_S: Final = 1.0


@settings()
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw steps over time: a line for each worker of one run, or for each of several runs.

    Returns:
        The figure; None if no record holds a step.
    """
    own = "a worker's own steps" if len(runs) == 1 else "own steps, a mean"
    total = speed_column(runs)
    labels = {total: X_LABELS[total] if total == "images" else "global step", "local_step": own}
    columns = [column for column in labels if any(len(run.values(column)) for run in runs)]
    if not columns:
        return None
    figure, axes = panels(runs, 4.6, 1, len(columns))
    for ax, column in zip(axes, columns, strict=True):
        if len(runs) == 1:
            _workers(ax, runs[0], column)
        else:
            _groups(ax, runs, column)
        begin_at_zero(ax, runs)
        ax.set_ylim(bottom=0)
        ax.set(xlabel=runs[0].clock, ylabel=labels[column])
        thousands(ax)
        ax.locator_params(axis="x", nbins=6)
    return finish(figure, runs, axes)


def caption(runs: Sequence[Trace]) -> str:
    """How to read the figure."""
    return _READ_ONE if len(runs) == 1 else _READ_SEVERAL + groups_caption(runs)


def describe(runs: Sequence[Trace]) -> list[str]:
    """Describe the progress of these runs, a sentence each."""
    if len(runs) == 1:
        return [_of_one(runs[0])]
    parts = []
    for name, group in grouped(runs).items():
        ends = [float(run.steps["seconds"].max()) for run in group if len(run.steps)]
        if ends:
            spread = f"{min(ends):.1f} to {max(ends):.1f}" if len(ends) > 1 else f"{ends[0]:.1f}"
            parts.append(f"{name}: the last step is {spread} s after the first began.")
    if any(run.marks for run in runs):
        parts.append("Triangles on the time axis: faults, late starts and new starts.")
    return parts


def _of_one(run: Trace) -> str:
    lasts = {task: float(run.of(task)["seconds"].max()) for task in run.workers}
    done = max(lasts, key=lasts.__getitem__)
    first = float(run.steps["seconds"].min())
    ends = (
        f"the first record is {first:.1f} s after the run's submission, and the last step is"
        f" {done}'s, at {lasts[done]:.1f} s."
    )
    begins = {task: first_step(run.of(task)) for task in run.workers}
    if len(begins) == 1:
        return ends.capitalize()
    early, late = min(begins, key=begins.__getitem__), max(begins, key=begins.__getitem__)
    apart = begins[late] - begins[early]
    if apart < _TOGETHER_S:
        return f"All workers begin together; {ends}"
    begin = "begins" if run.of(late)["step_time_s"].notna().any() else "has its first record"
    return f"{late} {begin} {apart:.1f} s after {early}; {ends}"


def speed_column(runs: Sequence[Trace]) -> str:
    """The column whose growth is the speed: images of several runs, if all of them have it.

    Updates of different experiments use different numbers of images.
    """
    trained = [run for run in runs if len(run.steps)]
    has_images = all(len(run.values("images")) for run in trained)
    return "images" if len(runs) > 1 and trained and has_images else "global_step"


def line_of(run: Trace, column: str) -> tuple[Floats, Floats]:
    """A run's highest global step or images over time, or the workers' mean of their own steps."""
    seconds = run.column("seconds")
    if column in {"global_step", "images"}:
        there = ~np.isnan(run.column(column))
        return seconds[there], np.maximum.accumulate(run.column(column)[there])
    lines = []
    for task in run.workers:
        rows = run.of(task).dropna(subset=[column])
        if len(rows):
            own = np.asarray(rows["seconds"], float), np.asarray(rows[column], float)
            lines.append(np.interp(seconds, *own, left=0.0))
    return (seconds, np.mean(lines, axis=0)) if lines else (np.empty(0), np.empty(0))


def _workers(ax: Axes, run: Trace, column: str) -> None:
    for number, (task, style) in enumerate(workers(run)):
        rows = run.of(task).dropna(subset=[column])
        spacing = max(1, len(rows) // _MARKERS)
        ax.plot(
            rows["seconds"], rows[column], color=style.colour, linestyle=style.line,
            marker=style.marker, markevery=(number * spacing // 4, spacing), markersize=6,
            linewidth=1.8, label=safe_label(task),
        )  # fmt: skip


def _groups(ax: Axes, runs: Sequence[Trace], column: str) -> None:
    draw_groups(ax, runs, lambda run: line_of(run, column))
    for style, group in groups(runs).values():
        for mark in (mark for run in group for mark in run.marks):
            ax.plot(
                [mark.begin], [0], marker="^", color=style.colour, markersize=10,
                clip_on=False, linestyle="", zorder=5,
            )  # fmt: skip
