"""Histograms of the staleness of gradients, or dots if there are few steps."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lab.base.statistics import Floats, mean_of, mean_with_ci
from lab.runner.store.summary import mean_staleness
from lab.study.plots.data import Trace, grouped
from lab.study.plots.style import BLACK, legend, line_style, new_figure, safe_label, settings

_ACROSS: Final = 4
_MOST_PANELS: Final = 12
_TAIL: Final = 0.98  # the share of steps left of the last bar, which holds the rest
_MOST_BARS: Final = 25
_FEW: Final = 30  # a panel with fewer steps has a dot for each: their shares mean little


@settings()
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw a panel for each worker of one run, or for each group of several.

    Returns:
        The figure; None if no record has a staleness.
    """
    panels = _panels(runs)
    if not panels:
        return None
    last = _last_bar(np.concatenate([one for panel in panels for one in panel.recorded]))
    across = min(_ACROSS, len(panels))
    rows = math.ceil(len(panels) / across)
    drawn = new_figure(0.6 + 3.2 * rows)
    axes = drawn.subplots(rows, across, sharex=True, sharey=True, squeeze=False)
    is_few = any(sum(map(len, panel.recorded)) < _FEW for panel in panels)
    order = runs[0].workers if len(runs) == 1 else list(grouped(runs))
    for panel, ax in zip(panels, axes.flat, strict=False):
        # The same worker or group has the same colour in the other figures.
        place = order.index(panel.name) if panel.name in order else 0
        (_dots if is_few else _histogram)(ax, panel, last, line_style(place).colour)
        if panel.mean is not None:
            ax.axvline(panel.mean, color=BLACK, linestyle="--", linewidth=1.5)
        ax.set_xlim(-0.6, last + 0.6)
        ax.grid(visible=False, axis="x")
        title = f"{safe_label(panel.name, 100)} (n = {sum(map(len, panel.recorded)):,})"
        ax.set_title(textwrap.fill(title, 100 // across))
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    ticks = np.unique(np.linspace(0, last, min(last + 1, 6)).round().astype(int))
    beyond = any((one > last).any() for panel in panels for one in panel.recorded)
    # The panels share their x axis, so one call sets the ticks of all.
    axes[0, 0].set_xticks(ticks, [f"{at}+" if beyond and at == last else f"{at}" for at in ticks])
    for ax in axes[:, 0]:
        ax.set_ylabel("recorded steps" if is_few else "share of recorded steps (%)")
    drawn.supxlabel("staleness (updates by others)", fontsize=13)
    if any(panel.mean is not None for panel in panels):
        label = "mean over all steps"
        legend(drawn, [Line2D([], [], color=BLACK, linestyle="--", linewidth=1.5, label=label)])
    return drawn


@dataclass(frozen=True, slots=True)
class _Panel:
    """A worker of one run, or a group of runs.

    Attributes:
        name: The worker or the group.
        recorded: The staleness of the recorded steps of each run, without first steps.
        mean: The mean over all steps, for a group over the means of its runs; None: not known.
    """

    name: str
    recorded: Sequence[Floats]
    mean: float | None


def _panels(runs: Sequence[Trace]) -> list[_Panel]:
    """The panels that have recorded steps."""
    if len(runs) > 1:
        found = [_group(name, group) for name, group in grouped(runs).items()]
        return [panel for panel in found if panel.recorded][:_MOST_PANELS]
    (run,) = runs
    each = [(task, run.values("staleness", task)) for task in run.workers]
    there = [_Panel(task, [values], _mean(run, task)) for task, values in each if len(values)]
    if len(there) > _MOST_PANELS:
        return [_Panel("all workers", [run.values("staleness")], _mean(run))]
    return there


def _group(name: str, group: Sequence[Trace]) -> _Panel:
    recorded = [values for run in group if len(values := run.values("staleness"))]
    mean = mean_of(map(_mean, group))
    return _Panel(name, recorded, None if mean is None else mean.value)


def _mean(run: Trace, task: str | None = None) -> float | None:
    return mean_staleness(each for each in run.tasks if task in {None, each.task})


def _last_bar(values: Floats) -> int:
    reached = np.quantile(values, _TAIL, method="lower")
    return int(min(max(reached + 1, 3), _MOST_BARS))


def _histogram(ax: Axes, panel: _Panel, last: int, colour: str) -> None:
    """Draw bars from 0 to `last`; the last bar also counts all larger values."""
    edges = np.arange(last + 2) - 0.5
    shares = [
        np.histogram(np.clip(np.round(one), 0, last), edges)[0] / len(one) for one in panel.recorded
    ]
    height, half = mean_with_ci(100 * np.array(shares))
    ax.bar(np.arange(last + 1), height, color=colour, width=0.8)
    if not np.isnan(half).any():
        ax.errorbar(np.arange(last + 1), height, half, linestyle="", color=BLACK, capsize=3)


def _dots(ax: Axes, panel: _Panel, last: int, colour: str) -> None:
    """Draw a dot for each step, on top of those with the same value."""
    values = np.sort(np.clip(np.round(np.concatenate(panel.recorded)), 0, last))
    heights = 1 + np.arange(len(values)) - np.searchsorted(values, values)
    ax.plot(values, heights, linestyle="", marker="o", markersize=6, color=colour)
    ax.set_ylim(0, max(heights.max() + 1, ax.get_ylim()[1]))
    ax.locator_params(axis="y", integer=True)
