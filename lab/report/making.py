"""From runs to files: each figure is drawn once, and written beside the page that shows it."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.backends import Say
from lab.errors import InputError, LabError
from lab.figures import style
from lab.figures.charts import CHARTS
from lab.figures.trace import from_first_step
from lab.outputs import check_output, write_output
from lab.report.data import Reported
from lab.report.page import Shown, is_a_page, page
from lab.report.verdicts import Verdicts
from lab.task.text import short

FIGURES: Final = "figures"
PAGE: Final = "report.html"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the files of a report go.

    Attributes:
        page: The HTML file.
        figures: The directory of the PNGs and SVGs.
    """

    page: Path
    figures: Path


def places(runs: Sequence[Path], output: str | None, home: Path, *, force: bool = False) -> Places:
    """Where a report goes, and that it can go there.

    Args:
        runs: The directories of the runs.
        output: The page's file, as it was typed, whose figures go beside it and are named after it;
            None: in the run's directory, or beside several.
        home: Where runs are kept.
        force: Whether to replace a file that is no report.

    Raises:
        InputError: What is there is no file, or no report; or its directory is missing.
    """
    if output is None:
        folder = runs[0] if len(runs) == 1 else home
        return Places(folder / PAGE, _own(folder / FIGURES))
    target = Path(output)
    check_output("--output", target, is_a_page, force=force)
    if target.exists() and not target.is_file():
        raise InputError(f"--output: {short(output)} is no file", "name one, such as report.html")
    # A directory of this page's own: what lies beside it may be anybody's.
    return Places(target, _own(target.with_name(f"{target.stem}-{FIGURES}")))


def _own(folder: Path) -> Path:
    """The directory itself.

    Raises:
        InputError: Something else is there.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{short(str(folder))} is no directory of its own", "move it away")
    return folder


def make(
    runs: Sequence[Reported], judged: Verdicts | None, where: Places, say: Say
) -> tuple[Path, list[Path]]:
    """Draw the figures, and write them and the page.

    Args:
        runs: One or several.
        judged: Verdicts that are to stand on the page, or None.
        where: Where the files go.
        say: Receives a line for each figure.

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
            figure = chart.draw(traces)
            if figure is None:
                # An older report's would show what is not there any more.
                for ending in ("png", "svg"):
                    (where.figures / f"{chart.name}.{ending}").unlink(missing_ok=True)
                say(f"{chart.title}: not drawn, {chart.lacks}")
                shown.append(Shown(chart, (), "", None))
                continue
            image = style.png(figure)
            for ending, data in (("png", image), ("svg", style.svg(figure))):
                file = where.figures / f"{chart.name}.{ending}"
                write_output(file, data)
                files.append(file)
            wide = round(100 * figure.get_figwidth())
            say(f"{chart.title}: {where.figures / chart.name}.png and .svg")
            shown.append(Shown(chart, chart.see(traces), chart.read(traces), image, wide))
        write_output(where.page, page(runs, shown, judged).encode())
    except OSError as error:
        raise _unwritten(error, where) from error
    return where.page, files


def _unwritten(error: OSError, where: Places) -> LabError:
    """What to say of a report that cannot be written, and how it can be."""
    is_figure = str(error.filename or "").startswith(str(where.figures))
    place = short(str(where.figures if is_figure else where.page))
    what = f"the report cannot be written to {place}: {error.strerror or error}"
    full = "make room, or " if error.errno in {errno.ENOSPC, errno.EDQUOT} else ""
    return LabError(what, f"{full}name a file in another directory with --output")
