"""`lab report RUN…`.

RUN is the id of a run, last or last~1, the directory of a run, a directory of runs, or
an archive of `lab export`. An argument with a slash is always a path. Damaged runs are
skipped with a warning.

The page is self-contained. Its figures are also saved as PNG and SVG files in figures/ next to it,
or in both-figures/ with --output both.html. --tensorboard writes event files to tb/ or both-tb/;
view them with `tensorboard --logdir DIRECTORY`. --output replaces an older page, but no other file.
If a run is outside the run store, the page is ./report.html.

Examples:
    # the newest run: report.html in its directory
    lab report last
    # several runs, to a file
    lab report 20260101-0000-async-aaaa last --output both.html
    # also write event files for TensorBoard
    lab report last --tensorboard
    # all runs of a directory, under one label
    lab report ./runs --label "group 1"
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

from lab.backends.registry import backends
from lab.base.formatting import counted
from lab.base.log import LOG
from lab.base.options import Flag, Switch, verb
from lab.base.text import visible
from lab.cluster.project import AnyPath
from lab.runner.status import StatusProber
from lab.runner.store.directory import runs_path
from lab.runner.store.names import open_runs, read_each
from lab.verbs.common_options import RunsDir
from lab.verbs.printing import Shown, prints
from lab.verbs.results import Labels, NamedRuns

if TYPE_CHECKING:
    from lab.study.report.loader import ReportRun

PAGE: Final = "report.html"
"""The page in the current directory, if a run is outside the run store."""


@dataclass(frozen=True, slots=True, repr=False)
class Report(Shown):
    """A report that was written; a notebook shows a link to its page.

    Attributes:
        path: The HTML page.
        figures: The figures as PNG and SVG.
        events: The event files for TensorBoard, if they were wanted.
    """

    path: Path
    figures: Sequence[Path]
    events: Sequence[Path] = ()

    def __fspath__(self) -> str:
        """Return the path of the page."""
        return str(self.path)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as a JSON value."""
        return {
            "report": str(self.path),
            "figures": list(map(str, self.figures)),
            "events": list(map(str, self.events)),
        }

    def _shown(self) -> list[str]:
        return [str(self.path)]

    def _repr_html_(self) -> str:
        """Return a link; a notebook server serves paths relative to the notebook."""
        target = quote(os.path.relpath(self.path))
        return f'<a href="{escape(target)}" target="_blank">{escape(visible(str(self.path)))}</a>'


@verb
def report(
    *runs: NamedRuns,
    output: Annotated[AnyPath | None, Flag(shows="FILE")] = None,
    label: Labels = (),
    verdicts: Annotated[AnyPath | None, Flag(shows="FILE")] = None,
    tensorboard: Annotated[bool, Switch()] = False,
    force: Annotated[bool, Switch()] = False,
    runs_dir: RunsDir = None,
) -> Report:
    """Write one page with the figures and tables of one or several runs.

    Args:
        runs: Runs, ids, `last`, directories of runs, or archives of `lab export`.
        output: The page to write (default: in the run's directory; for several, in the run store).
        label: No label, one for each argument, or a single one for all of them.
        verdicts: Also show the results of claims that `lab reproduce` wrote.
        tensorboard: Also write TensorBoard's event files, to tb/ next to the page.
        force: Replace the file even if lab did not write it.
        runs_dir: The run store.

    Raises:
        InputError: An argument names no run, or the page cannot be written there.
        LabError: No run can be read, or a file cannot be written.
    """
    options = locals()
    store = runs_path(runs_dir)
    # Imported here: importing matplotlib and pandas takes a second.
    from lab.study.report.build import build, output_paths  # noqa: PLC0415
    from lab.study.report.loader import read_run, with_groups  # noqa: PLC0415
    from lab.study.reproduce.verdicts import read_evaluation  # noqa: PLC0415

    with open_runs(options["runs"], options["label"], store) as opened:
        page = options["output"]
        if page is None and not all(run.is_own for run in opened):
            page = PAGE
        where = output_paths([run.directory.path for run in opened], page, store, force=force)
        claims = None if verdicts is None else read_evaluation(Path(verdicts))
        prober = StatusProber(backends)
        read = read_each(opened, lambda run: read_run(run, run.probe(prober)))
        named = with_groups(read)
        events = _write_events(named, where.events) if tensorboard else []
        return Report(*build(named, claims, where), events)


def _write_events(runs: Sequence[ReportRun], folder: Path) -> list[Path]:
    # Imported here: TensorBoard's formats take a third of a second.
    from lab.study.tensorboard import write_events  # noqa: PLC0415

    written = write_events([run.run for run in runs], folder)
    command = shlex.join(["tensorboard", "--logdir", str(folder)])
    LOG.info(f"{counted(len(written), 'event file')}: show them with `{command}`")
    return written


command = prints(report)
