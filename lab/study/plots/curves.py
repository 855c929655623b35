"""The figures with lines over global steps, images or time: loss, accuracy, steps and speed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import PercentFormatter

from lab.base.statistics import Floats
from lab.study.plots import style as styles
from lab.study.plots.data import Trace
from lab.study.plots.style import (
    BLACK,
    X_LABELS,
    LineStyle,
    line_style,
    safe_label,
    smoothed,
    workers,
)

_FEW: Final = 40  # a line with fewer points has a marker at each
_MANY: Final = 300  # from this number on, a worker's points overlap and are drawn small and pale
_SPREAD: Final = 4  # a loss that changes by a larger factor is drawn on a logarithmic axis
_MARKERS: Final = 12  # on each line of steps
_SPEEDS: Final = {"seen": "images per second", "global_step": "steps per second"}


def _beside(
    runs: Sequence[Trace],
    columns: Sequence[str],
    height: float,
    one: Callable[[Axes, Trace, str], None],
    several: Callable[[str, Trace], tuple[Floats, Floats]],
    *,
    share_y: bool = True,
) -> tuple[Figure, dict[str, Axes]]:
    """Draw a panel for each column, with the lines of one run or of several runs.

    Args:
        runs: At least one.
        columns: What the lines are drawn against, or what they show.
        height: In inches.
        one: Draws the lines of a single run.
        several: Returns the line of each of several runs.
        share_y: Whether all panels share their y axis.
    """
    figure, axes = styles.panels(height, 1, len(columns), share_y=share_y)
    panels = dict(zip(columns, axes, strict=True))
    for column, ax in panels.items():
        if len(runs) == 1:
            one(ax, runs[0], column)
        else:
            styles.draw_groups(ax, runs, partial(several, column))
    return figure, panels


def _known(runs: Sequence[Trace], columns: Iterable[str], measure: str) -> list[str]:
    """The columns that a measure can be drawn against."""
    return [each for each in columns if any(len(run.points(each, measure)[0]) for run in runs)]


def _timed(panels: dict[str, Axes]) -> list[Axes]:
    return [ax for column, ax in panels.items() if column == "seconds"]


# The loss.


@styles.settings()
def loss(runs: Sequence[Trace]) -> Figure | None:
    """Draw the loss: a line for each model of one run, or for each of several runs.

    Workers that train one model have one line, and points of their own.

    Args:
        runs: At least one.

    Returns:
        The figure; None if no record has a loss.
    """
    columns = _known(runs, X_LABELS, "loss")
    if not columns:
        return None
    figure, panels = _beside(runs, columns, 4.8, _losses, _pooled)
    for column, ax in panels.items():
        styles.label_x(ax, runs, column, 4)
    is_own, first = any(run.info.spec.own for run in runs), panels[columns[0]]
    first.set_ylabel("loss" if is_own else "loss of a batch (cross entropy)")
    losses = np.concatenate([run.values("loss") for run in runs])
    if (losses > 0).all() and losses.max() > _SPREAD * losses.min():
        styles.logarithmic(first)
        # From the lines: the interval of a mean may reach 0, which a logarithmic axis lacks.
        drawn = np.concatenate(
            [np.asarray(line.get_ydata(), float) for ax in figure.axes for line in ax.get_lines()]
        )
        first.set_ylim(0.85 * np.nanmin(drawn), 1.15 * np.nanmax(drawn))
    return styles.finish(figure, runs, _timed(panels))


def _pooled(column: str, run: Trace) -> tuple[Floats, Floats]:
    """The smoothed loss of all workers.

    Workers record at almost the same steps: the line would be a staircase. So each of its points
    is the mean of as many neighbouring records as there are workers.
    """
    x, y = run.points(column, "loss")
    begins = np.arange(0, len(x), max(1, len(run.workers)))
    sizes = np.diff([*begins, len(x)])
    return np.add.reduceat(x, begins) / sizes, smoothed(np.add.reduceat(y, begins) / sizes)


def _losses(ax: Axes, run: Trace, column: str) -> None:
    """Draw the points of each worker, and a line for each model."""
    for task, style in workers(run):
        x, y = run.points(column, "loss", task)
        _dots(ax, x, y, style, safe_label(task) if run.is_of_one_model else "_points")
        if not run.is_of_one_model:
            _line(ax, x, smoothed(y), style, safe_label(task))
    if run.is_of_one_model:
        _line(ax, *_pooled(column, run), replace(line_style(0), colour=BLACK), "all workers")


def _dots(ax: Axes, x: Floats, y: Floats, style: LineStyle, label: str) -> None:
    step = styles.stride(len(x))
    shown = len(x[::step])
    # Many points are drawn small and pale, and the line gets a white rim, to stay visible.
    size, alpha = (6.0, 0.4) if shown < _MANY else (3.0, max(0.12, 0.4 * _MANY / shown))
    ax.plot(
        x[::step], y[::step], linestyle="", marker=".", markersize=size, color=style.colour,
        alpha=alpha, markeredgewidth=0, rasterized=True, zorder=1.8, label=label,
    )  # fmt: skip


def _line(ax: Axes, x: Floats, y: Floats, style: LineStyle, label: str) -> None:
    step = styles.stride(len(x))
    marker = style.marker if len(x) < _FEW else ""
    ax.plot(
        x[::step], y[::step], color=style.colour, linestyle=style.line, marker=marker,
        markersize=5, label=label, path_effects=[Stroke(linewidth=4, foreground="white"), Normal()],
    )  # fmt: skip


# The accuracy on the test images.


@styles.settings()
def accuracy(runs: Sequence[Trace]) -> Figure | None:
    """Draw the tests during the training as lines, and the final parameters as diamonds.

    Returns:
        The figure; None if no run has tests during the training.
    """
    if not any(_has_curve(run) for run in runs):
        return None
    columns = _known(runs, ("step", "seconds"), "accuracy")
    figure, panels = _beside(runs, columns, 4.6, _tests, _accuracies)
    for column, ax in panels.items():
        _diamonds(ax, runs, column)
        styles.label_x(ax, runs, column, 5)
    first = panels[columns[0]]
    first.set_ylabel("accuracy")
    first.yaxis.set_major_formatter(PercentFormatter(1))
    return styles.finish(figure, runs, _timed(panels))


def _accuracies(column: str, run: Trace) -> tuple[Floats, Floats]:
    return run.points(column, "accuracy")


def _tests(ax: Axes, run: Trace, column: str) -> None:
    x, y = _accuracies(column, run)
    ax.plot(x, y, color=styles.BLUE, marker="o", markersize=5, label="tests")


def _diamonds(ax: Axes, runs: Sequence[Trace], column: str) -> None:
    """Mark the final parameters of each run."""
    label = "final parameters"
    for style, group in styles.groups(runs).values():
        finals = (run.of("final_accuracy").tail(1) for run in group)
        for final in finals:
            if final.empty:  # matplotlib cannot place an empty line that is not clipped
                continue
            ax.plot(
                final[column], final["value"], linestyle="", marker="D", markersize=9,
                markerfacecolor="white", markeredgecolor=style.colour, markeredgewidth=2,
                label=label if len(runs) == 1 else "_", zorder=4, clip_on=False,
            )  # fmt: skip


def _has_curve(run: Trace) -> bool:
    """Whether a task tested the parameters more than once, the final ones excepted."""
    tests, final = (run.of(name)["task"].value_counts() for name in ("accuracy", "final_accuracy"))
    return bool((tests.sub(final, fill_value=0) > 1).any())


# The global step, and each worker's own steps.


@styles.settings()
def progress(runs: Sequence[Trace]) -> Figure | None:
    """Draw steps over time: a line for each worker of one run, or for each of several runs.

    Returns:
        The figure; None if no record has a step.
    """
    own = "a worker's own steps" if len(runs) == 1 else "own steps, a mean"
    total = _counted(runs)
    labels = {total: X_LABELS["images"] if total == "seen" else "global step", "local_step": own}
    columns = [column for column in labels if any(len(run.values(column)) for run in runs)]
    if not columns:
        return None
    figure, panels = _beside(runs, columns, 4.6, _own_steps, _over_time, share_y=False)
    for column, ax in panels.items():
        styles.begin_at_zero(ax, runs)
        ax.set_ylim(bottom=0)
        ax.set(xlabel=runs[0].clock, ylabel=labels[column])
        styles.thousands(ax)
        ax.locator_params(axis="x", nbins=6)
    return styles.finish(figure, runs, figure.axes)


def _counted(runs: Sequence[Trace]) -> str:
    """The measure whose growth is the speed: images of several runs, if all of them have it.

    Updates of different experiments use different numbers of images.
    """
    trained = [run for run in runs if run.workers]
    has_images = all(len(run.values("seen")) for run in trained)
    return "seen" if len(runs) > 1 and trained and has_images else "global_step"


def _over_time(column: str, run: Trace) -> tuple[Floats, Floats]:
    """A run's highest global step or images over time, or the workers' mean of their own steps."""
    seconds, counts = run.points("seconds", column)
    if column in {"global_step", "seen"} or not len(seconds):
        return seconds, np.maximum.accumulate(counts)
    own = (run.points("seconds", column, task) for task in run.workers)
    every = np.asarray(run.of(column)["seconds"], np.float64)
    return every, np.mean([np.interp(every, *each, left=0.0) for each in own if len(each[0])], 0)


def _own_steps(ax: Axes, run: Trace, column: str) -> None:
    for number, (task, style) in enumerate(workers(run)):
        x, y = run.points("seconds", column, task)
        spacing = max(1, len(x) // _MARKERS)
        ax.plot(
            x, y, color=style.colour, linestyle=style.line,
            marker=style.marker, markevery=(number * spacing // 4, spacing), markersize=6,
            linewidth=1.8, label=safe_label(task),
        )  # fmt: skip


# The speed, and the use of the GPUs.


@styles.settings()
def throughput(runs: Sequence[Trace]) -> Figure | None:
    """Draw steps per second over time, and below it the use of the GPUs if it was sampled.

    Returns:
        The figure; None if no line can be drawn.
    """
    if not any(run.has_a_second_record if len(runs) == 1 else _has_rates(run) for run in runs):
        return None
    has_gpus = any(len(run.values("utilisation")) for run in runs)
    column = _counted(runs)
    figure, axes = styles.panels(6.6 if has_gpus else 4.4, 2 if has_gpus else 1)
    if len(runs) == 1:
        _speeds(axes[0], runs[0])
    else:
        styles.draw_groups(
            axes[0], runs, lambda run: _rates(run, column) if _has_rates(run) else None
        )
    axes[0].set_ylabel(_SPEEDS[column])
    axes[0].set_ylim(0, 1.08 * max(axes[0].dataLim.y1, 0) or 1)
    styles.thousands(axes[0], "y")
    if has_gpus:
        _gpus(axes[1], runs)
    styles.begin_at_zero(axes[0], runs)
    axes[-1].set_xlabel(runs[0].clock)
    return styles.finish(figure, runs, axes)


def _rates(run: Trace, column: str = "global_step") -> tuple[Floats, Floats]:
    """The growth of a count, until the first worker has finished: its leaving is no slowness."""
    seconds, counts = _over_time(column, run)
    together = seconds <= run.leaving_s
    return styles.rates(seconds[together], counts[together])


def _has_rates(run: Trace) -> bool:
    """Whether the growth of the global step can be drawn; it needs two records of one worker."""
    return run.has_a_second_record and len(_rates(run)[0]) > 0


def _speeds(ax: Axes, run: Trace) -> None:
    if _has_rates(run):
        ax.plot(*_rates(run), color=BLACK, linewidth=3, label="global steps")
    for task, style in workers(run):
        x, y = styles.rates(*run.points("seconds", "local_step", task))
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
            for name, (style, group) in styles.groups(runs).items()
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
