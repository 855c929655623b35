"""From runs to files: each figure is drawn once, and written beside the page that shows it."""

from __future__ import annotations

import base64
import errno
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from lab import formatting
from lab.errors import InputError, LabError
from lab.outputs import check_output, write_output
from lab.plots import style
from lab.plots.data import from_first_step
from lab.plots.registry import CHARTS, Chart, Runs
from lab.report.loader import ReportRun, by_group
from lab.report.provenance import provenance
from lab.report.verdicts import ClaimResults
from lab.statistics import mean_with_ci
from lab.task.text import short, visible

FIGURES: Final = "figures"
PAGE: Final = "report.html"

MARKER: Final = '<meta name="generator" content="lab report">'
"""Every page has it near its beginning, and is known by it as one that may be replaced."""

_TEMPLATE: Final = Path(__file__).with_name("page.html.j2")


@dataclass(frozen=True, slots=True)
class OutputPaths:
    """Where the files of a report go.

    Attributes:
        page: The HTML file.
        figures: The directory of the PNGs and SVGs.
    """

    page: Path
    figures: Path


@dataclass(frozen=True, slots=True)
class PlotSection:
    """A figure on the page.

    Attributes:
        chart: Which.
        see: What is to be seen in it, sentence by sentence.
        read: How to read it.
        address: The PNG as an address that holds all of it; empty where there is nothing to draw.
        wide: CSS pixels across, where there is room.
    """

    chart: Chart
    description: Sequence[str] = ()
    caption: str = ""
    data_uri: str = ""
    width: int = 0


def output_paths(
    runs: Sequence[Path], output: str | None, store: Path, *, force: bool = False
) -> OutputPaths:
    """Where a report goes, and that it can go there.

    Args:
        runs: The directories of the runs.
        output: The page's file, as it was typed, whose figures go beside it and are named after it;
            None: in the run's directory, or beside several.
        store: Where runs are kept.
        force: Whether to replace a file that is no report.

    Raises:
        InputError: What is there is no file, or no report; or its directory is missing.
    """
    if output is None:
        folder = runs[0] if len(runs) == 1 else store
        found = OutputPaths(folder / PAGE, folder / FIGURES)
    else:
        target = Path(output)
        check_output("--output", target, is_a_page, force=force)
        if target.exists() and not target.is_file():
            what = f"--output: {short(output)} is no file"
            raise InputError(what, "name one, such as report.html")
        # A directory of this page's own: what lies beside it may be anybody's.
        found = OutputPaths(target, target.with_name(f"{target.stem}-{FIGURES}"))
    if found.figures.is_symlink() or (found.figures.exists() and not found.figures.is_dir()):
        what = f"{short(str(found.figures))} is no directory of its own"
        raise InputError(what, "move it away")
    return found


def is_a_page(begin: bytes) -> bool:
    """Whether a file that begins so is a page of the lab's."""
    return MARKER.encode() in begin


def build(
    runs: Sequence[ReportRun],
    judged: ClaimResults | None,
    where: OutputPaths,
    notify: Callable[[str], None],
) -> tuple[Path, list[Path]]:
    """Draw the figures, and write them and the page.

    Args:
        runs: One or several.
        judged: Verdicts that are to stand on the page, or None.
        where: Where the files go.
        notify: Receives a line for each figure.

    Returns:
        The page's file, and the figures' files.

    Raises:
        LabError: A file cannot be written.
    """
    traces = [each.trace for each in runs]
    if len(traces) > 1:  # how long each took to begin stands in the table
        traces = [from_first_step(trace) for trace in traces]
    shown, files = [], []
    try:
        where.figures.mkdir(exist_ok=True)
        for chart in CHARTS:
            paths = [where.figures / f"{chart.name}.{ending}" for ending in ("png", "svg")]
            shown.append(_draw(chart, traces, *paths))
            if shown[-1].data_uri:
                notify(f"{chart.title}: {paths[0]} and .svg")
                files += paths
            else:
                notify(f"{chart.title}: not drawn, {chart.missing}")
        write_output(where.page, page(runs, shown, judged).encode())
    except OSError as error:
        raise _unwritten(error, where) from error
    return where.page, files


def _draw(chart: Chart, traces: Runs, png: Path, svg: Path) -> PlotSection:
    """Draw a figure into both of its files; without a figure remove those of an older report."""
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
    return PlotSection(chart, chart.describe(traces), chart.caption(traces), address, wide)


def _unwritten(error: OSError, where: OutputPaths) -> LabError:
    """What to say of a report that cannot be written, and how it can be."""
    is_figure = str(error.filename or "").startswith(str(where.figures))
    place = short(str(where.figures if is_figure else where.page))
    what = f"the report cannot be written to {place}: {error.strerror or error}"
    full = "make room, or " if error.errno in {errno.ENOSPC, errno.EDQUOT} else ""
    return LabError(what, f"{full}name a file in another directory with --output")


def page(
    runs: Sequence[ReportRun], figures: Sequence[PlotSection], judged: ClaimResults | None
) -> str:
    """The whole page, in HTML.

    Args:
        runs: One or several.
        figures: In their order.
        judged: The verdicts that are to stand on it, or None.
    """
    # What comes from a run is escaped by the template, and its control characters are shown.
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_seen,
    )
    environment.globals |= {
        name: getattr(formatting, name)
        for name in ("band", "between", "compared", "mean_of_runs", "number", "pace", "percent",
                     "rate", "seconds", "share", "whole")
    } | {"mean": mean, "tenths": partial(formatting.fixed, decimals=1)}  # fmt: skip
    ids = {each.info.run_id for each in runs}
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        marker=Markup(MARKER),  # noqa: S704  (our own)
        one=runs[0] if len(runs) == 1 else None,
        runs=runs,
        groups=by_group(runs),
        judged=judged,
        elsewhere=len(set(judged.runs) - ids) if judged else 0,
        figures=figures,
        origins=provenance(
            [each.info for each in runs], {each.info.run_id: each.learning_rate for each in runs}
        ),
    )


def _seen(value: object) -> object:
    """A text without what would turn or hide it; what the template itself made stays as it is."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def mean(values: Iterable[float | None], form: Callable[[float], str]) -> str:
    """A mean with its 95% interval, over those values that are known; nothing where none is."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return ""
    middle, half = map(float, mean_with_ci(known))
    return form(middle) if math.isnan(half) else f"{form(middle)} ± {form(half)}"
