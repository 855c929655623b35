"""Draws the figures of runs, and writes them and the page of a report."""

from __future__ import annotations

import base64
import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from lab.base.errors import InputError, LabError
from lab.base.files import check_output, write_output
from lab.base.formatting import counted
from lab.base.log import LOG
from lab.base.text import short, suggestion
from lab.runner.store.directory import Probe, RunDir
from lab.study.plots import style
from lab.study.plots.charts import CHARTS, Chart, Runs
from lab.study.plots.data import from_first_step
from lab.study.report.loader import ReportRun, read_runs
from lab.study.report.page import PlotSection, is_a_page, page
from lab.study.reproduce.verdicts import Evaluation

FIGURES: Final = "figures"
EVENTS: Final = "tb"
PAGE: Final = "report.html"


@dataclass(frozen=True, slots=True)
class OutputPaths:
    """The output paths of a report.

    Attributes:
        page: The HTML file.
        figures: The directory of the PNGs and SVGs.
        events: The directory of TensorBoard's event files.
    """

    page: Path
    figures: Path
    events: Path


def output_paths(
    runs: Sequence[Path], output: str | None, store: Path, *, force: bool = False
) -> OutputPaths:
    """Return the output paths of a report, and check that it can be written there.

    Args:
        runs: The directories of the runs.
        output: The page's file, as the user typed it; the figures go into a directory beside it,
            with a name from the file. None: the run's directory, or the store for several runs.
        store: The run store.
        force: Whether to replace a file that is not a report.

    Raises:
        InputError: The path is not a file or not a report, or its directory is missing.
    """
    if output is None:
        folder = runs[0] if len(runs) == 1 else store
        found = OutputPaths(folder / PAGE, folder / FIGURES, folder / EVENTS)
    else:
        target = Path(output)
        check_output("--output", target, is_a_page, force=force)
        if target.exists() and not target.is_file():
            what = f"--output: {output} is not a file"
            raise InputError(what, "name a file, such as report.html")
        # This page has its own directories: other files beside it may not belong to a report.
        figures, events = (target.with_name(f"{target.stem}-{name}") for name in (FIGURES, EVENTS))
        found = OutputPaths(target, figures, events)
    if found.figures.is_symlink() or (found.figures.exists() and not found.figures.is_dir()):
        what = f"{short(str(found.figures))} is not a directory"
        raise InputError(what, "move or remove it")
    return found


def build(
    runs: Sequence[ReportRun],
    judged: Evaluation | None,
    where: OutputPaths,
) -> tuple[Path, list[Path]]:
    """Draw the figures, and write them and the page.

    Args:
        runs: One or several runs.
        judged: The results of claims for the page, or None.
        where: The output paths.

    Returns:
        The page's file, and the figures' files.

    Raises:
        LabError: A file cannot be written.
    """
    data = traces(runs)  # the table shows the time of the first step
    shown, files = [], []
    try:
        where.figures.mkdir(exist_ok=True)
        for chart in CHARTS:
            paths = [where.figures / f"{chart.name}.{ending}" for ending in ("png", "svg")]
            shown.append(_draw(chart, data, *paths))
            if shown[-1].data_uri:
                LOG.info(f"{chart.title}: {paths[0]} and .svg")
                files += paths
            else:
                LOG.info(f"{chart.title}: not drawn, {chart.missing}")
        write_output(where.page, page(runs, shown, judged).encode())
    except OSError as error:
        raise _unwritten(error, where) from error
    return where.page, files


def draw_figure(name: str, runs: Sequence[RunDir], probe: Probe) -> Figure:
    """Draw a figure.

    Args:
        name: The name of a figure in `lab.study.plots.charts`.
        runs: One or several runs.
        probe: Returns the status of a run that is not collected.

    Raises:
        InputError: No figure has this name, or there is no run.
        LabError: The runs have no data for it, or a `run.json` is missing or unreadable.
    """
    charts = {chart.name: chart for chart in CHARTS}
    if name not in charts:
        raise InputError(
            f"no figure {name!r}",
            f"{suggestion(name, charts)}use one of {', '.join(charts)}",
        )
    if not runs:
        raise InputError(f"figure {name!r} needs a run", "name one or more runs")
    data = traces(read_runs(runs, probe))
    figure = charts[name].draw(data)
    if figure is None:
        of = f"run {runs[0].run_id}" if len(runs) == 1 else counted(len(runs), "run")
        raise LabError(f"figure {name!r} of {of} has no data: {charts[name].missing}")
    return figure


def traces(runs: Sequence[ReportRun]) -> Runs:
    """Return the data of figures; the time of several runs begins with their first step."""
    found = [each.trace for each in runs]
    return [from_first_step(trace) for trace in found] if len(found) > 1 else found


def _draw(chart: Chart, traces: Runs, png: Path, svg: Path) -> PlotSection:
    """Write a figure to both files; without a figure, remove the files of an older report."""
    figure = chart.draw(traces)
    if figure is None:
        png.unlink(missing_ok=True)
        svg.unlink(missing_ok=True)
        return PlotSection(chart)
    image = style.png(figure)
    write_output(png, image)
    write_output(svg, style.svg(figure))
    address = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    wide = round(100 * figure.get_figwidth())
    return PlotSection(chart, chart.caption(traces), address, wide)


def _unwritten(error: OSError, where: OutputPaths) -> LabError:
    """Return the error of a report that cannot be written, with the hint."""
    is_figure = str(error.filename or "").startswith(str(where.figures))
    place = where.figures if is_figure else where.page
    what = f"the report cannot be written to {place}: {error.strerror or error}"
    full = "free disk space, or " if error.errno in {errno.ENOSPC, errno.EDQUOT} else ""
    return LabError(what, f"{full}choose a file in another directory with --output")
