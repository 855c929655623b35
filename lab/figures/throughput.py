"""How fast the training is at each moment, and how busy its cards are meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.figures import marks, overlay
from lab.figures.progress import line_of
from lab.figures.series import rates, smoothed
from lab.figures.style import BLACK, legend, look, plain, sheet, styled, thousands
from lab.figures.trace import Trace, grouped
from lab.formatting import pace

NAME: Final = "throughput"
TITLE: Final = "Throughput, and use of the GPUs"

_READ_ONE: Final = (
    "Steps per second, in equal spans of time. The thick line counts the updates of the shared"
    " parameters; the others are each worker's own steps: they add up to it where every step is an"
    " update, and lie on it where an update takes a gradient of each worker. A dip at a fault tells"
    " who else pays for it."
)
_READ_SEVERAL: Final = "Updates of the shared parameters per second, in equal spans of time."
_GPU_READ: Final = (
    " Below: the share of the time in which a card computed anything, by the driver, smoothed over"
    " neighbouring samples."
)


@styled
def draw(runs: Sequence[Trace]) -> Figure | None:
    """Draw steps per second over time, above the use of the cards where there are samples.

    Returns:
        The figure; None where no worker has two records of a step.
    """
    if not any(run.has_a_second_record for run in runs):
        return None
    has_gpus = any(len(run.samples) for run in runs)
    noted = marks.room(runs[0].marks) if len(runs) == 1 else 0
    figure = sheet((6.6 if has_gpus else 4.4) + noted)
    axes = figure.subplots(2 if has_gpus else 1, 1, sharex=True, squeeze=False)[:, 0]
    if len(runs) == 1:
        _workers(axes[0], runs[0])
    else:
        _groups(axes[0], runs)
    axes[0].set_ylabel("steps per second")
    axes[0].set_ylim(0, 1.08 * max(axes[0].dataLim.y1, 0) or 1)
    thousands(axes[0], "y")
    if has_gpus:
        _cards(axes[1], runs)
    if len(runs) == 1:
        axes[0].set_xlim(0, runs[0].end * 1.02 or 1)
        for place, ax in enumerate(axes):
            marks.draw(ax, runs[0].marks, numbers=place == 0)
    else:
        axes[0].set_xlim(left=0)
    axes[-1].set_xlabel(runs[0].clock)
    legend(figure, axes[0].get_legend_handles_labels()[0])
    if len(runs) == 1:
        marks.note(figure, runs[0].marks)
    return figure


def read(runs: Sequence[Trace]) -> str:
    """How to read the figure."""
    steps = _READ_ONE if len(runs) == 1 else _READ_SEVERAL + overlay.read(runs)
    return steps + (_GPU_READ if any(len(run.samples) for run in runs) else "")


def see(runs: Sequence[Trace]) -> list[str]:
    """What there is to be seen, sentence by sentence."""
    found = []
    for name, group in grouped(runs).items():
        paces = []
        for run in group:
            seconds, steps = line_of(run, "global_step")
            if run.has_a_second_record and seconds[-1] > seconds[0]:
                paces.append((steps[-1] - steps[0]) / (seconds[-1] - seconds[0]))
        if paces:
            who = f"{name}: " if len(runs) > 1 else ""
            found.append(f"{who}{pace(float(np.mean(paces)))} global steps a second on average.")
        else:
            found.append(f"{name}: not drawn, no worker has two records of a step.")
    if not any(len(run.samples) for run in runs):
        found.append("No card was sampled, so that the use of GPUs is not drawn.")
    return found


def _workers(ax: Axes, run: Trace) -> None:
    ax.plot(*rates(*line_of(run, "global_step")), color=BLACK, linewidth=3, label="global steps")
    for number, task in enumerate(run.workers):
        rows, style = run.of(task).dropna(subset=["local_step"]), look(number)
        x, y = rates(np.asarray(rows["seconds"], float), np.asarray(rows["local_step"], float))
        spacing = max(1, len(x) // 10)
        ax.plot(
            x, y, color=style.colour, linestyle=style.line, linewidth=1.6, marker=style.marker,
            markevery=spacing, markersize=5, label=plain(task),
        )  # fmt: skip


def _groups(ax: Axes, runs: Sequence[Trace]) -> None:
    for number, (name, group) in enumerate(grouped(runs).items()):
        told = [run for run in group if run.has_a_second_record]
        overlay.draw(ax, number, name, [rates(*line_of(run, "global_step")) for run in told])


def _cards(ax: Axes, runs: Sequence[Trace]) -> None:
    """The use of each task's cards in a run; of each run's cards where there are several runs."""
    lines = []
    if len(runs) == 1:
        samples = runs[0].samples
        order = [task for task in runs[0].info.task_names() if task in set(samples["task"])]
        lines = [
            (number, plain(task), samples[samples["task"] == task])
            for number, task in enumerate(order)
        ]
    else:
        for number, (name, group) in enumerate(grouped(runs).items()):
            labels = [plain(name, 60), *["_again"] * len(group)]
            lines += [
                (number, label, run.samples) for label, run in zip(labels, group, strict=False)
            ]
    looks = {task: look(number) for number, task in enumerate(runs[0].workers)}
    for number, label, rows in lines:
        style = looks.get(label, look(number)) if len(runs) == 1 else look(number)
        mean = rows.groupby("seconds")["utilisation"].mean()
        ax.plot(
            mean.index, 100 * smoothed(np.asarray(mean, float)), color=style.colour,
            linestyle=style.line, linewidth=1.8, label=label,
        )  # fmt: skip
    ax.set_ylabel("GPU busy (%)")
    ax.set_ylim(0, 103)
