"""The speed of the training over time, and the use of its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.plots.data import Trace
from lab.plots.panels import (
    begin_at_zero,
    draw_groups,
    finish,
    groups,
    panels,
    rates,
    smoothed,
    workers,
)
from lab.plots.progress import line_of, speed_column
from lab.plots.style import BLACK, line_style, safe_label, settings, thousands
from lab.statistics import Floats

_LABELS: Final = {"seen": "images per second", "global_step": "steps per second"}


@settings()
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw steps per second over time, and below it the use of the GPUs if it was sampled.

    Returns:
        The figure; None if no line can be drawn.
    """
    if not any(run.has_a_second_record if len(runs) == 1 else _has_rates(run) for run in runs):
        return None
    has_gpus = any(len(run.values("utilisation")) for run in runs)
    column = speed_column(runs)
    figure, axes = panels(6.6 if has_gpus else 4.4, 2 if has_gpus else 1)
    if len(runs) == 1:
        _workers(axes[0], runs[0])
    else:
        draw_groups(axes[0], runs, lambda run: _rates(run, column) if _has_rates(run) else None)
    axes[0].set_ylabel(_LABELS[column])
    axes[0].set_ylim(0, 1.08 * max(axes[0].dataLim.y1, 0) or 1)
    thousands(axes[0], "y")
    if has_gpus:
        _gpus(axes[1], runs)
    begin_at_zero(axes[0], runs)
    axes[-1].set_xlabel(runs[0].clock)
    return finish(figure, runs, axes)


def _rates(run: Trace, column: str = "global_step") -> tuple[Floats, Floats]:
    """The growth of a count, until the first worker has finished: its leaving is no slowness."""
    seconds, counts = line_of(run, column)
    together = seconds <= run.leaving_s
    return rates(seconds[together], counts[together])


def _has_rates(run: Trace) -> bool:
    """Whether the growth of the global step can be drawn; it needs two records of one worker."""
    return run.has_a_second_record and len(_rates(run)[0]) > 0


def _workers(ax: Axes, run: Trace) -> None:
    if _has_rates(run):
        ax.plot(*_rates(run), color=BLACK, linewidth=3, label="global steps")
    for task, style in workers(run):
        x, y = rates(*run.points("seconds", "local_step", task))
        spacing = max(1, len(x) // 10)
        ax.plot(
            x, y, color=style.colour, linestyle=style.line, linewidth=1.6, marker=style.marker,
            markevery=spacing, markersize=5, label=safe_label(task),
        )  # fmt: skip


def _gpus(ax: Axes, runs: Sequence[Trace]) -> None:
    """Draw the GPU use of each task of one run, or of each of several runs."""
    if len(runs) == 1:
        of_task = dict(list(runs[0].of("utilisation").groupby("task")))
        sampled = [task for task in runs[0].info.task_names() if task in of_task]
        looks = {
            **{task: line_style(n) for n, task in enumerate(sampled)},
            **dict(workers(runs[0])),
        }
        lines = [(looks[task], safe_label(task), of_task[task]) for task in sampled]
    else:
        lines = [
            (style, "_again" if number else safe_label(name, 60), run.of("utilisation"))
            for name, (style, group) in groups(runs).items()
            for number, run in enumerate(group)
        ]
    for style, label, rows in lines:
        mean = rows.groupby("seconds")["value"].mean()
        ax.plot(
            mean.index, 100 * smoothed(np.asarray(mean, float)), color=style.colour,
            linestyle=style.line, linewidth=1.8, label=label,
        )  # fmt: skip
    ax.set_ylabel("GPU busy (%)")
    ax.set_ylim(0, 103)
