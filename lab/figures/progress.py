"""How far each worker saw the training at each moment: the global step, and its own steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.figures import marks, overlay
from lab.figures.series import Floats
from lab.figures.style import legend, look, plain, sheet, styled, thousands
from lab.figures.trace import Trace, first_step, grouped

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


@styled
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw steps over time, worker by worker for one run, run by run for several.

    Returns:
        The figure; None where no record holds a step.
    """
    panels = [
        (column, label)
        for column, label in (
            ("global_step", "global step"),
            ("local_step", "a worker's own steps"),
        )
        if any((~np.isnan(run.column(column))).any() for run in runs)
    ]
    if not panels:
        return None
    figure = sheet(4.6 + (marks.room(runs[0].marks) if len(runs) == 1 else 0))
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (column, label) in zip(axes, panels, strict=True):
        if len(runs) == 1:
            _workers(ax, runs[0], column)
            ax.set_xlim(0, runs[0].end * 1.02 or 1)
            marks.draw(ax, runs[0].marks)
        else:
            _groups(ax, runs, column)
            ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
        ax.set_xlabel(runs[0].clock)
        ax.set_ylabel(label if len(runs) == 1 or column == "global_step" else "own steps, a mean")
        thousands(ax)
        ax.locator_params(axis="x", nbins=6)
    legend(figure, axes[0].get_legend_handles_labels()[0])
    if len(runs) == 1:
        marks.note(figure, runs[0].marks)
    return figure


def read(runs: Sequence[Trace]) -> str:
    """How to read the figure."""
    return _READ_ONE if len(runs) == 1 else _READ_SEVERAL + overlay.read(runs)


def see(runs: Sequence[Trace]) -> list[str]:
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
    for number, task in enumerate(run.workers):
        style, rows = look(number), run.of(task).dropna(subset=[column])
        spacing = max(1, len(rows) // _MARKERS)
        ax.plot(
            rows["seconds"], rows[column], color=style.colour, linestyle=style.line,
            marker=style.marker, markevery=(number * spacing // 4, spacing), markersize=6,
            linewidth=1.8, label=plain(task),
        )  # fmt: skip


def _groups(ax: Axes, runs: Sequence[Trace], column: str) -> None:
    for number, (name, group) in enumerate(grouped(runs).items()):
        overlay.draw(ax, number, name, [line_of(run, column) for run in group])
        for mark in (mark for run in group for mark in run.marks):
            ax.plot(
                [mark.begin], [0], marker="^", color=look(number).colour, markersize=10,
                clip_on=False, linestyle="", zorder=5,
            )  # fmt: skip
