"""Draws one figure of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lab.errors import InputError, LabError
from lab.formatting import counted
from lab.plots.data import from_first_step
from lab.plots.registry import CHARTS, Runs
from lab.report.loader import ReportRun, read_runs
from lab.store.directory import Probe, RunDir
from lab.text import short, suggestion

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(name: str, runs: Sequence[RunDir], probe: Probe) -> Figure:
    """Draw a figure.

    Args:
        name: The name of a figure in `lab.plots.registry`.
        runs: One or several runs.
        probe: Returns the status of a run that is not collected.

    Raises:
        InputError: No figure has this name, or there is no run.
        LabError: The runs have no data for it, or a `run.json` is missing or unreadable.
    """
    charts = {chart.name: chart for chart in CHARTS}
    if name not in charts:
        raise InputError(
            f"no figure {short(name)!r}",
            f"{suggestion(name, charts)}use one of {', '.join(charts)}",
        )
    if not runs:
        raise InputError(f"figure {name!r} needs a run", "give one run or several")
    data = traces(read_runs(runs, probe))
    figure = charts[name].draw(data)
    if figure is None:
        of = f"run {runs[0].run_id}" if len(runs) == 1 else counted(len(runs), "run")
        raise LabError(f"figure {name!r} of {of} has no data: {charts[name].missing(data)}")
    return figure


def traces(runs: Sequence[ReportRun]) -> Runs:
    """Return the data of figures; the time of several runs begins at their first step."""
    found = [each.trace for each in runs]
    return [from_first_step(trace) for trace in found] if len(found) > 1 else found
