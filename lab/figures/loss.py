"""The loss against global steps, against time, and against images: three answers to "how fast?"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

from lab.figures import marks, overlay
from lab.figures.series import Floats, every, smoothed, window_for
from lab.figures.style import Look, legend, logarithmic, look, plain, sheet, styled, thousands
from lab.figures.trace import Trace, grouped

NAME: Final = "loss"
TITLE: Final = "Loss"

_PANELS_READ: Final = (
    "The same losses three times: by updates of the shared parameters (left), by the clock"
    " (middle), and by images that all workers together have seen (right)."
)
_ASK: Final = (
    " Compare ways of training in the panel that asks your question: is an update worth more, is"
    " the clock beaten, is the data used well?"
)

_FEW: Final = 40  # points that are few enough for all their marks to be seen
_MANY: Final = 300  # points of a worker that lie on one another
_SPREAD: Final = 4  # a loss that changes by that factor is drawn on a logarithmic axis


@dataclass(frozen=True, slots=True)
class _Panel:
    """One of the axes that the loss is drawn against."""

    column: str
    label: str


_PANELS: Final = (
    _Panel("global_step", "global step (updates)"),
    _Panel("seconds", "wall time (s)"),
    _Panel("images", "images seen by all workers"),
)


@styled
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw the loss of one run worker by worker, and of several runs as one line each.

    Args:
        runs: At least one.

    Returns:
        The figure; None where no record holds a loss.
    """
    panels = [panel for panel in _PANELS if _has(runs, panel)]
    if not panels:
        return None
    figure = sheet(4.8 + (marks.room(runs[0].marks) if len(runs) == 1 else 0))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, panel in zip(axes, panels, strict=True):
        if len(runs) == 1:
            _workers(ax, runs[0], panel)
        else:
            _groups(ax, grouped(runs), panel)
        ax.set_xlabel(runs[0].clock if panel.column == "seconds" else panel.label)
        ax.set_xlim(left=0)
        thousands(ax, "x")
        ax.locator_params(axis="x", nbins=4)
    axes[0].set_ylabel("loss of a batch (cross entropy)")
    if _is_steep(runs):
        logarithmic(axes[0])
        # By the lines: the interval of a mean may reach down to 0, which such an axis has not.
        drawn = np.concatenate(
            [np.asarray(line.get_ydata(), float) for ax in axes for line in ax.get_lines()]
        )
        axes[0].set_ylim(0.85 * np.nanmin(drawn), 1.15 * np.nanmax(drawn))
    # After the limits, which are taken from all lines that are there.
    for ax, panel in zip(axes, panels, strict=True):
        _mark_lost(ax, runs, panel)
        if len(runs) == 1 and panel.column == "seconds":
            marks.draw(ax, runs[0].marks)
    legend(figure, axes[0].get_legend_handles_labels()[0])
    if len(runs) == 1:
        marks.note(figure, runs[0].marks)
    return figure


def read(runs: Sequence[Trace]) -> str:
    """How to read the figure."""
    most = max((len(run.of(task)) for run in runs for task in run.workers), default=0)
    if len(runs) > 1:
        window = window_for(max(len(run.steps) for run in runs))
        return (
            f"{_PANELS_READ} Lines are means over {window} neighbouring records."
            f"{overlay.read(runs)}{_ASK}"
        )
    step = every(most)
    drawn = f" (each {_th(step)} is drawn)" if step > 1 else ""
    return (
        f"{_PANELS_READ} A faint point is the loss of one batch{drawn}; a line is the mean over"
        f" {window_for(most)} neighbouring points.{_ASK}"
    )


def see(runs: Sequence[Trace]) -> list[str]:
    """What there is to be seen, sentence by sentence."""
    found = []
    for name, group in grouped(runs).items():
        firsts, lasts = zip(*(_ends(run) for run in group), strict=True)
        who = f"{name}: the" if len(runs) > 1 else "The"
        if any(run.has_a_second_record for run in group):
            found.append(f"{who} loss goes from about {_mean(firsts)} to {_mean(lasts)}.")
        else:
            found.append(f"{who} loss is {_mean(firsts)}; no worker has a second record.")
    for _, who, steps in _all_lost(runs):
        step = float(steps["global_step"].iloc[0])
        begin = f"step {step:,.0f}" if np.isfinite(step) else "the dotted line"
        found.append(
            f"From {begin} on, no loss of {who} can be drawn (dotted line): it is NaN, infinite,"
            " huge or missing."
        )
    missing = sum(int(np.isnan(run.column("loss")).sum()) for run in runs)
    if missing:
        found.append(f"{missing:,} records hold no loss that could be drawn.")
    return found


def _has(runs: Sequence[Trace], panel: _Panel) -> bool:
    return any((~np.isnan(run.column("loss") + run.column(panel.column))).any() for run in runs)


def _points(steps: Mapping[str, object], panel: _Panel) -> tuple[Floats, Floats]:
    """The place and the loss of those records that hold both, by x."""
    x = np.asarray(steps[panel.column], np.float64)
    y = np.asarray(steps["loss"], np.float64)
    there = ~np.isnan(x + y)
    order = np.argsort(x[there], kind="stable")
    return x[there][order], y[there][order]


def _lost(run: Trace) -> dict[str, pd.DataFrame]:
    """Tasks to their last records, where these hold no loss any more: a training that diverged."""
    found = {}
    for task in run.workers:
        steps = run.of(task)
        there = np.flatnonzero(~np.isnan(np.asarray(steps["loss"], np.float64)))
        last = there[-1] + 1 if len(there) else 0
        if 0 < last < len(steps):
            found[task] = steps.iloc[last:]
    return found


def _all_lost(runs: Sequence[Trace]) -> Iterator[tuple[int, str, pd.DataFrame]]:
    """The number of the line, the task's name, and its last records, which hold no loss."""
    if len(runs) == 1:
        for task, steps in _lost(runs[0]).items():
            yield runs[0].workers.index(task), plain(task), steps
        return
    for number, group in enumerate(grouped(runs).values()):
        for run in group:
            for task, steps in _lost(run).items():
                yield number, f"{plain(task)} of {plain(run.label)}", steps


def _mark_lost(ax: Axes, runs: Sequence[Trace], panel: _Panel) -> None:
    for number, _, steps in _all_lost(runs):
        where = float(steps[panel.column].iloc[0])
        if np.isfinite(where):
            ax.axvline(where, color=look(number).colour, linestyle=":", linewidth=1.5)


def _workers(ax: Axes, run: Trace, panel: _Panel) -> None:
    for number, task in enumerate(run.workers):
        x, y = _points(run.of(task), panel)  # type: ignore[arg-type]  # a frame, by its columns
        _line(ax, x, y, look(number), plain(task))


def _groups(ax: Axes, groups: Mapping[str, Sequence[Trace]], panel: _Panel) -> None:
    for number, (name, runs) in enumerate(groups.items()):
        overlay.draw(ax, number, name, [_pooled(run, panel) for run in runs])


def _pooled(run: Trace, panel: _Panel) -> tuple[Floats, Floats]:
    """The smoothed loss of all workers; those of the same moment count as one, by their mean."""
    x, y = _points(run.steps, panel)  # type: ignore[arg-type]  # a frame, by its columns
    moments, places = np.unique(x, return_inverse=True)
    if not len(moments):
        return x, y
    return moments, smoothed(np.bincount(places, y) / np.bincount(places))


def _line(ax: Axes, x: Floats, y: Floats, style: Look, label: str) -> None:
    step = every(len(x))
    shown = len(x[::step])
    # Many points are small and pale, and the line has a white rim: it would drown in them.
    size, alpha = (6.0, 0.4) if shown < _MANY else (3.0, max(0.12, 0.4 * _MANY / shown))
    ax.plot(
        x[::step], y[::step], linestyle="", marker=".", markersize=size, color=style.colour,
        alpha=alpha, markeredgewidth=0, rasterized=True, zorder=1.8,
    )  # fmt: skip
    marker = style.marker if len(x) < _FEW else ""
    ax.plot(
        x[::step], smoothed(y)[::step], color=style.colour, linestyle=style.line, marker=marker,
        markersize=5, label=label, path_effects=[Stroke(linewidth=4, foreground="white"), Normal()],
    )  # fmt: skip


def _is_steep(runs: Sequence[Trace]) -> bool:
    losses = np.concatenate([run.column("loss") for run in runs])
    losses = losses[~np.isnan(losses)]
    return bool((losses > 0).all() and losses.max() > _SPREAD * losses.min())


def _ends(run: Trace) -> tuple[float, float]:
    """The smoothed loss at the begin and at the end."""
    losses = run.column("loss")
    losses = losses[~np.isnan(losses)]
    line = smoothed(losses)
    return (float(losses[0]), float(line[-1])) if len(losses) else (np.nan, np.nan)


def _mean(values: Sequence[float]) -> str:
    there = [value for value in values if not np.isnan(value)]
    return f"{np.mean(there):.3g}" if there else "nothing"


def _th(number: int) -> str:
    return (
        f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number if number < 20 else number % 10, 'th') }"  # noqa: PLR2004
    )
