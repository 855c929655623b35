"""The page of `lab report`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import quote

from lab.backends.registry import backends
from lab.run.status import StatusProber
from lab.store.names import open_runs, read_each
from lab.text import visible

PAGE: Final = "report.html"
"""The page in the current directory, if a run is outside the run store."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was written; a notebook shows a link to its page.

    Attributes:
        path: The HTML page.
        figures: The figures as PNG and SVG.
        conclusion: What the runs show, as text without control characters.
    """

    path: Path
    figures: Sequence[Path]
    conclusion: str

    def __fspath__(self) -> str:
        """Return the path of the page."""
        return str(self.path)

    def _repr_html_(self) -> str:
        """Return a link; a notebook server serves paths relative to the notebook."""
        target = quote(os.path.relpath(self.path))
        return f'<a href="{escape(target)}" target="_blank">{escape(visible(str(self.path)))}</a>'


def write_report(
    arguments: Sequence[str],
    store: Path,
    *,
    labels: Sequence[str] = (),
    output: str | None = None,
    verdicts: str | None = None,
    force: bool = False,
) -> Report:
    """Write one page with the figures and tables of runs.

    Args:
        arguments: What `lab.store.names.open_runs` accepts; at least one.
        store: The run store.
        labels: No label, one for each argument, or a single one for all of them.
        output: The page; None: in the directory of the run, for several runs in the run store. It
            is in the current directory if a run is outside the run store.
        verdicts: A file of `lab reproduce` whose claims the page also shows, or None.
        force: Whether to replace a file that is not a report.

    Raises:
        InputError: An argument names no run, or the page cannot be written there.
        LabError: No run can be read, or a file cannot be written.
    """
    # Imported here: importing matplotlib and pandas takes a second.
    from lab.report.build import build, output_paths  # noqa: PLC0415
    from lab.report.conclusion import conclude  # noqa: PLC0415
    from lab.report.loader import grouped, read_run  # noqa: PLC0415
    from lab.reproduce.evaluation import read_evaluation  # noqa: PLC0415

    with open_runs(arguments, labels, store) as runs:
        if output is None and not all(run.is_own for run in runs):
            output = PAGE
        folders = [run.directory.path for run in runs]
        where = output_paths(folders, output, store, force=force)
        claims = read_evaluation(Path(verdicts)) if verdicts is not None else None
        prober = StatusProber(backends)
        read = read_each(runs, lambda run: read_run(run, run.probe(prober)))
        named = grouped(read)
        return Report(*build(named, claims, where), str(conclude(named)))
