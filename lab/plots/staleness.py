"""Histograms of the staleness of gradients."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lab.plots.data import Trace, grouped, has_repeats
from lab.plots.style import BLACK, legend, line_style, new_figure, safe_label, settings
from lab.statistics import Floats, mean_with_ci

NAME: Final = "staleness"
TITLE: Final = "Staleness of the gradients"

_READ: Final = (
    "The staleness of a step is the number of updates by other workers after the step reads the"
    " parameters and before its own update. 0: the gradient belongs to the parameters that it"
    " changes. Among n equally fast workers that do not wait for each other, the mean (dashed) is"
    " at most n - 1. Only recorded steps are counted."
)
_WHISKERS: Final = " Whiskers: the 95% interval of the mean over a group's runs."
_ACROSS: Final = 4
_MOST_PANELS: Final = 12
_TAIL: Final = 0.98  # the share of steps left of the last bar, which holds the rest
_MOST_BARS: Final = 25


@settings()
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw a histogram for each worker of one run, or for each group of several.

    Returns:
        The figure; None if no record holds a staleness.
    """
    panels = _panels(runs)
    if not panels:
        return None
    last = _last_bar(np.concatenate([one for _, several in panels for one in several]))
    across = min(_ACROSS, len(panels))
    rows = math.ceil(len(panels) / across)
    figure = new_figure(0.6 + 3.2 * rows)
    axes = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False)
    order = runs[0].workers if len(runs) == 1 else list(grouped(runs))
    for (name, several), ax in zip(panels, axes.flat, strict=False):
        # The same worker or group has the same colour in the other figures.
        _histogram(ax, several, last, line_style(order.index(name) if name in order else 0).colour)
        ax.set_title(textwrap.fill(safe_label(name, 100), 100 // across))
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    ticks = np.unique(np.linspace(0, last, min(last + 1, 6)).round().astype(int))
    beyond = any((one > last).any() for _, several in panels for one in several)
    # The panels share their x axis, so one call sets the ticks of all.
    axes[0, 0].set_xticks(ticks, [f"{at}+" if beyond and at == last else f"{at}" for at in ticks])
    for ax in axes[:, 0]:
        ax.set_ylabel("share of steps (%)")
    figure.supxlabel("staleness (updates by others)", fontsize=13)
    mean = Line2D([], [], color=BLACK, linestyle="--", linewidth=1.5, label="mean")
    legend(figure, [mean])
    return figure


def caption(runs: Sequence[Trace]) -> str:
    """How to read the figure."""
    return _READ + (_WHISKERS if has_repeats(runs) else "")


def describe(runs: Sequence[Trace]) -> list[str]:
    """Describe the staleness of these runs, a sentence each."""
    means = [(name, float(np.concatenate(several).mean())) for name, several in _panels(runs)]
    if len(runs) > 1:
        return [f"{name}: {mean:.2f} updates by others on average." for name, mean in means]
    listed = ", ".join(f"{mean:.2f} for {name}" for name, mean in means)
    return [f"Updates by others, on average: {listed}."]


def _panels(runs: Sequence[Trace]) -> list[tuple[str, list[Floats]]]:
    """For each panel: its name, and the staleness values of each of its runs."""
    if len(runs) > 1:
        found = {
            name: [values for run in group if len(values := run.values("staleness"))]
            for name, group in grouped(runs).items()
        }
        return [(name, several) for name, several in found.items() if several][:_MOST_PANELS]
    each = [(task, runs[0].values("staleness", task)) for task in runs[0].workers]
    there = [(task, [values]) for task, values in each if len(values)]
    if len(there) > _MOST_PANELS:
        return [("all workers", [runs[0].values("staleness")])]
    return there


def _last_bar(values: Floats) -> int:
    reached = np.quantile(values, _TAIL, method="lower")
    return int(min(max(reached + 1, 3), _MOST_BARS))


def _histogram(ax: Axes, several: Sequence[Floats], last: int, colour: str) -> None:
    """Draw bars from 0 to `last`; the last bar also counts all larger values."""
    edges = np.arange(last + 2) - 0.5
    shares = [np.histogram(np.clip(np.round(one), 0, last), edges)[0] / len(one) for one in several]
    height, half = mean_with_ci(100 * np.array(shares))
    ax.bar(np.arange(last + 1), height, color=colour, width=0.8)
    if not np.isnan(half).any():
        ax.errorbar(np.arange(last + 1), height, half, linestyle="", color=BLACK, capsize=3)
    ax.axvline(float(np.concatenate(several).mean()), color=BLACK, linestyle="--", linewidth=1.5)
    ax.set_xlim(-0.6, last + 0.6)
    ax.grid(visible=False, axis="x")
