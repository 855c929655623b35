"""Common parts of the figures: panels, marks, the legend, and the styles of workers and groups."""

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
    """Create an empty figure, and its panels row by row.

    Args:
        runs: The runs to draw; the marks of a single run add to the height.
        height: Inches without the marks.
        rows: The number of rows of panels.
        columns: The number of panels in a row.
        share_y: Whether all panels share their y axis; panels of a column share their x axis.
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
    """Draw the marks, their note and the legend, after everything else.

    Args:
        figure: The figure with its panels.
        runs: The runs that it shows; only the marks of a single run are drawn.
        timed: The panels whose x axis is time.
        handles: The artists in the legend; None: the lines of the first panel.
    """
    shown = _marks(runs)
    for ax in timed:
        place = ax.get_subplotspec()
        marks.draw(ax, shown, numbers=place is not None and place.is_first_row())
    legend(figure, figure.axes[0].get_legend_handles_labels()[0] if handles is None else handles)
    marks.note(figure, shown)
    return figure


def begin_at_zero(ax: Axes, runs: Sequence[Trace]) -> None:
    """Begin an axis of time at 0; for a single run, end it a little after the run's end."""
    ax.set_xlim(0, (runs[0].end * 1.02 or 1) if len(runs) == 1 else None)


def workers(run: Trace) -> list[tuple[str, LineStyle]]:
    """Each worker of a run with the style of its line."""
    return [(task, line_style(number)) for number, task in enumerate(run.workers)]


def groups(runs: Sequence[Trace]) -> Mapping[str, tuple[LineStyle, list[Trace]]]:
    """The line style and the runs of each group, in order of appearance."""
    return {name: (line_style(n), group) for n, (name, group) in enumerate(grouped(runs).items())}


def draw_groups(
    ax: Axes, runs: Sequence[Trace], curve: Callable[[Trace], tuple[Floats, Floats] | None]
) -> None:
    """Draw each run's line faintly, and each group's mean with its interval.

    Args:
        ax: The axes to draw on.
        runs: The runs.
        curve: Returns x, ascending, and y of a run; None if the run cannot be drawn.
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
    """How to read the lines of several runs; the text follows another sentence."""
    if not has_repeats(runs):
        return " There is one line for each run."
    return (
        " Faint: each run. Strong: the mean of a group's runs with its 95% interval, while all of"
        " them train."
    )


def _marks(runs: Sequence[Trace]) -> Sequence[Mark]:
    return runs[0].marks if len(runs) == 1 else ()
