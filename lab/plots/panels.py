"""What the panels of a figure share: its marks and legend, a line a worker, a line a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.plots import markers as marks
from lab.plots.data import Mark, Trace, grouped, has_repeats
from lab.plots.smoothing import Floats, mean_curve, stride
from lab.plots.style import LineStyle, legend, line_style, new_figure, safe_label

_NO_LABEL = "_"  # matplotlib leaves it out of the legend


def panels(
    runs: Sequence[Trace], height: float, rows: int = 1, columns: int = 1, *, share_y: bool = False
) -> tuple[Figure, list[Axes]]:
    """An empty figure, and its panels row by row.

    Args:
        runs: What is to be drawn; the marks of a single run need room.
        height: Inches without that room.
        rows: How many rows of panels.
        columns: How many in a row.
        share_y: Whether all share their y axis; those of a column always share their x axis.
    """
    figure = new_figure(height + marks.room(_marks(runs)))
    axes = figure.subplots(rows, columns, squeeze=False, sharex="col", sharey=share_y)
    return figure, list(axes.flat)


def finish(
    figure: Figure,
    runs: Sequence[Trace],
    timed: Sequence[Axes] = (),
    handles: Sequence[Artist] | None = None,
) -> Figure:
    """Draw marks, note and legend, when all else is drawn.

    Args:
        figure: With its panels.
        runs: What it shows; the marks of a single run are drawn.
        timed: Those of its panels whose x axis is time.
        handles: What the legend explains; None: the lines of the first panel.
    """
    shown = _marks(runs)
    for ax in timed:
        place = ax.get_subplotspec()
        marks.draw(ax, shown, numbers=place is not None and place.is_first_row())
    legend(figure, figure.axes[0].get_legend_handles_labels()[0] if handles is None else handles)
    marks.note(figure, shown)
    return figure


def begin_at_zero(ax: Axes, runs: Sequence[Trace]) -> None:
    """Have an axis of time begin with the run, and end a little after a single one."""
    ax.set_xlim(0, (runs[0].end * 1.02 or 1) if len(runs) == 1 else None)


def workers(run: Trace) -> list[tuple[str, LineStyle]]:
    """Each worker of a run with its look."""
    return [(task, line_style(number)) for number, task in enumerate(run.workers)]


def groups(runs: Sequence[Trace]) -> Mapping[str, tuple[LineStyle, list[Trace]]]:
    """Group to its look and its runs, in order of appearance."""
    return {name: (line_style(n), group) for n, (name, group) in enumerate(grouped(runs).items())}


def draw_groups(
    ax: Axes, runs: Sequence[Trace], curve: Callable[[Trace], tuple[Floats, Floats] | None]
) -> None:
    """Draw each run's line faintly, and each group's mean with its interval.

    Args:
        ax: Where to.
        runs: The runs.
        curve: x, ascending, and y of a run; None where it cannot be drawn.
    """
    for name, (style, group) in groups(runs).items():
        label = safe_label(name, 70)
        curves = [found for run in group if (found := curve(run)) is not None]
        mean = mean_curve(curves)
        for whole in curves:
            x, y = (axis[:: stride(len(axis))] for axis in whole)
            if mean is None:  # a single run, or runs with nothing in common
                ax.plot(x, y, color=style.colour, linestyle=style.line, label=label)
                label = _NO_LABEL
            else:
                ax.plot(x, y, color=style.colour, alpha=0.3, linewidth=0.8)
        if mean is not None:
            x, y, half = mean
            label = f"{label} (mean of {len(curves)})"
            ax.plot(x, y, color=style.colour, linestyle=style.line, label=label)
            ax.fill_between(x, y - half, y + half, color=style.colour, alpha=0.25, linewidth=0)


def groups_caption(runs: Sequence[Trace]) -> str:
    """How to read the lines of several runs, to follow other sentences."""
    if not has_repeats(runs):
        return " A line for each run."
    return (
        " Faint: each run; strong: the mean of a group's runs, as long as all of them train, with"
        " its 95% interval."
    )


def _marks(runs: Sequence[Trace]) -> Sequence[Mark]:
    return runs[0].marks if len(runs) == 1 else ()
