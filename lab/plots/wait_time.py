"""The share of each worker's time for computing, and for waiting for the other workers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from lab.plots.data import Trace, grouped
from lab.plots.panels import begin_at_zero, finish, panels
from lab.plots.style import BLACK, BLUE, ORANGE, PALE, safe_label, settings
from lab.statistics import Floats, mean_with_ci

_HATCH: Final = "\\\\\\"
_MOST_ROWS: Final = 16
_MOST_BOXES: Final = 1000  # in a strip, which is about 1000 pixels wide


@settings()
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw strips over time for one run, and bars for several.

    Returns:
        The figure, without runs and workers that recorded no waiting time; None if none did.
    """
    if not any(map(_means, runs)):
        return None
    return _strips(runs[0]) if len(runs) == 1 else _bars(runs)


def _means(run: Trace, task: str | None = None) -> tuple[float, float] | None:
    """The mean time of a step and of its waiting, in seconds; None without a record of both.

    A record counts as often as the number of its steps: the first record is of one slow step.
    """
    steps = run.steps if task is None else run.of(task)
    made = steps.groupby(["task", "attempt"])["local_step"].diff().fillna(steps["local_step"])
    rows = _waits(steps)
    weights = made.where(made > 0, 1.0)[rows.index]
    if rows.empty:
        return None
    step, wait = (
        np.average(rows[name], weights=weights) for name in ("step_time_s", "wait_time_s")
    )
    return (float(step), float(wait)) if step > 0 else None


def _waits(steps: pd.DataFrame) -> pd.DataFrame:
    """The records that hold both times: what was not recorded is unknown, and not zero."""
    return steps.dropna(subset=["step_time_s", "wait_time_s"])


def _reported(group: Sequence[Trace]) -> list[tuple[float, float]]:
    """The means of the runs of a group that recorded both times."""
    return [means for means in map(_means, group) if means]


def _strips(run: Trace) -> Figure:
    workers = [task for task in run.workers if _means(run, task)][:_MOST_ROWS]
    figure, (ax,) = panels([run], 1.4 + 0.75 * len(workers))
    for row, task in enumerate(workers):
        _strip(ax, run, task, len(workers) - 1 - row)
    begin_at_zero(ax, [run])
    ax.set_ylim(-0.2, len(workers))
    names = [safe_label(task) for task in reversed(workers)]
    ax.set_yticks([row + 0.4 for row in range(len(workers))], names)
    ax.set_xlabel(run.clock)
    ax.grid(visible=False, axis="y")
    return finish(figure, [run], [ax], _legend([run]))


def _legend(runs: Sequence[Trace]) -> list[Patch]:
    found = [Patch(facecolor=BLUE, label="reads, computes, sends")]
    if any((run.steps["wait_time_s"] > 0).any() for run in runs):
        found.append(
            Patch(facecolor=ORANGE, hatch=_HATCH, edgecolor=BLACK, label="waits for others")
        )
    if len(runs) == 1:
        found.append(Patch(facecolor=PALE, label="makes no steps"))
    return found


def _strip(ax: Axes, run: Trace, task: str, bottom: float) -> None:
    """Draw a worker's strip: a box for each record, as wide as the time of its steps."""
    height = 0.8
    ax.barh(bottom + height / 2, run.end, height=height, color=PALE)
    lefts, widths, shares = _boxes(run, task)
    if not len(lefts):
        return
    # One polygon for all boxes of a strip: separate bars would make the file ten times as large.
    x = np.repeat(np.column_stack([lefts, lefts + widths]).ravel(), 2)
    zeros, ones = np.zeros(len(lefts)), np.ones(len(lefts))
    for low, high, colour, hatch in (
        (zeros, 1 - shares, BLUE, None),
        (1 - shares, ones, ORANGE, _HATCH),
    ):
        top = np.column_stack([low, high, high, low]).ravel()
        base = np.repeat(low, 4)
        ax.fill_between(
            x,
            bottom + height * base,
            bottom + height * top,
            linewidth=0,
            facecolor=colour,
            hatch=hatch,
            edgecolor=BLACK,
        )
    # The recorded time of a paused step includes the pause.
    for mark in run.marks:
        if mark.task == task and mark.stands_still and mark.end is not None:
            width = mark.end - mark.begin
            ax.barh(bottom + height / 2, width, left=mark.begin, height=height, color=PALE)


def _boxes(run: Trace, task: str) -> tuple[Floats, Floats, Floats]:
    """The left edge and width in seconds, and the share of waiting, of each record of a task."""
    rows = _waits(run.of(task))
    right = np.asarray(rows["seconds"], float)
    made = np.diff(np.asarray(rows["local_step"], float), prepend=0.0)
    step = np.asarray(rows["step_time_s"], float)
    width = np.where(made > 0, made, 1) * step
    # A box begins when its steps began, but not before the end of the previous box.
    before = np.concatenate([[-np.inf], right[:-1]])
    left = np.maximum(right - np.nan_to_num(width), before)
    # A gap shorter than a step or a pixel is closed: it would be drawn as a pale line.
    left = np.where(left - before < np.fmax(step, run.end / _MOST_BOXES), before, left)
    share = np.asarray(rows["wait_time_s"], float) / np.where(step > 0, step, np.inf)
    usable = right > left
    return joined(left[usable], (right - left)[usable], np.clip(share[usable], 0, 1))


def joined(left: Floats, width: Floats, share: Floats) -> tuple[Floats, Floats, Floats]:
    """Merge neighbouring boxes if there are too many to draw; their shares are averaged."""
    count = -(-len(left) // _MOST_BOXES)
    if count <= 1:
        return left, width, share
    firsts = np.arange(0, len(left), count)
    widths = np.add.reduceat(width, firsts)
    return left[firsts], widths, np.add.reduceat(share * width, firsts) / widths


def _folded(name: str) -> str:
    return textwrap.fill(safe_label(name, 100), 30, max_lines=3, placeholder=" …")


def _bars(runs: Sequence[Trace]) -> Figure:
    drawn = {
        name: reported for name, group in grouped(runs).items() if (reported := _reported(group))
    }
    groups = list(drawn.items())[:_MOST_ROWS]
    figure, (ax,) = panels(runs, 1.6 + 0.7 * len(groups))
    for row, (_, reported) in enumerate(reversed(groups)):
        (step, wait), (half, _) = mean_with_ci(1000 * np.array(reported))
        ax.barh(row, step - wait, color=BLUE, height=0.6)
        ax.barh(
            row, wait, left=step - wait, color=ORANGE, hatch=_HATCH, edgecolor=BLACK, height=0.6
        )
        if not np.isnan(half):
            ax.errorbar([step], [row], xerr=[half], color=BLACK, capsize=5, linestyle="")
    ax.set_yticks(range(len(groups)), [_folded(name) for name, _ in reversed(groups)])
    ax.set_xlabel("mean time of one step of a worker (ms)")
    ax.grid(visible=False, axis="y")
    ax.set_ylim(-0.6, len(groups) - 0.4)
    return finish(figure, runs, handles=_legend(runs))
