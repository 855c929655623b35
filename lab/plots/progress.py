"""How far each worker saw the training at each moment: the global step, and its own steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.plots.data import Trace, first_step, grouped
from lab.plots.panels import (
    begin_at_zero,
    draw_groups,
    finish,
    groups,
    groups_caption,
    panels,
    workers,
)
from lab.plots.smoothing import Floats
from lab.plots.style import safe_label, settings, thousands

NAME: Final = "progress"
TITLE: Final = "Global step over time"

_READ_ONE: Final = (
    "The global step counts the updates of all workers, so their lines lie on one another: its"
    " steepness is the pace of all together. Each worker's own steps are beside it: there a worker"
    " that is slow, late or gone leaves the others' lines."
)
_READ_SEVERAL: Final = (
    "How steep a line is tells the pace. A step of asynchronous training is the update of one"
    " worker; one of synchronous training takes a gradient of each."
)
_MARKERS: Final = 12  # on each line
_TOGETHER_S: Final = 1.0


@settings()
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw steps over time, worker by worker for one run, run by run for several.

    Returns:
        The figure; None where no record holds a step.
    """
    own = "a worker's own steps" if len(runs) == 1 else "own steps, a mean"
    labels = {"global_step": "global step", "local_step": own}
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
    """What there is to be seen, sentence by sentence."""
    if len(runs) == 1:
        return [_of_one(runs[0])]
    parts = []
    for name, group in grouped(runs).items():
        ends = [float(run.steps["seconds"].max()) for run in group if len(run.steps)]
        if ends:
            spread = f"{min(ends):.1f} to {max(ends):.1f}" if len(ends) > 1 else f"{ends[0]:.1f}"
            parts.append(f"{name}: the last step {spread} s after the first.")
    if any(run.marks for run in runs):
        parts.append("Triangles on the axis of time: faults, late starts and new starts.")
    return parts


def _of_one(run: Trace) -> str:
    lasts = {task: float(run.of(task)["seconds"].max()) for task in run.workers}
    done = max(lasts, key=lasts.__getitem__)
    first = float(run.steps["seconds"].min())
    ends = (
        f"the first record comes {first:.1f} s after the run was handed to its tasks, and the last"
        f" step is {done}'s, at {lasts[done]:.1f} s."
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


def line_of(run: Trace, column: str) -> tuple[Floats, Floats]:
    """A count of one run over time: the highest global step, or the workers' mean of own steps."""
    seconds = run.column("seconds")
    if column == "global_step":
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
