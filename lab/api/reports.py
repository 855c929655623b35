"""Reports and comparisons of runs from Python: `lab report` and `lab compare`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

from rich.console import Group
from rich.text import Text

from lab.api.results import Run
from lab.api.tables import Shown
from lab.backends.registry import backends
from lab.console import messages_shown
from lab.errors import InputError
from lab.formatting import counted
from lab.log import LOG
from lab.options import Arguments, Flag, RepeatedFlag, Switch, reads_options
from lab.options.shared import RunsDir
from lab.project import AnyPath
from lab.run.status import StatusProber
from lab.shipped import named_extras
from lab.store.directory import runs_path
from lab.store.names import open_runs, read_each
from lab.text import visible

if TYPE_CHECKING:
    import pandas as pd  # importing it takes half a second

    from lab.analysis.comparison import Side
    from lab.report.loader import ReportRun

PAGE: Final = "report.html"
"""The page in the current directory, if a run is outside the run store."""

NamedRuns = Annotated[
    Run | AnyPath, Arguments("runs: ids, last, last~1, directories, or archives", shows="RUN")
]
Labels = Annotated[
    str | Sequence[str],
    RepeatedFlag("a name for the runs of one RUN, or of all; for each RUN, in order", shows="TEXT"),
]


@dataclass(frozen=True, slots=True)
class Report:
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

    def show(self) -> None:
        """Print the path of the page."""
        print(self.path)

    def _repr_html_(self) -> str:
        """Return a link; a notebook server serves paths relative to the notebook."""
        target = quote(os.path.relpath(self.path))
        return f'<a href="{escape(target)}" target="_blank">{escape(visible(str(self.path)))}</a>'


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Shown):
    """Runs side by side; differences and ratios are to the first run.

    Attributes:
        sides: The runs.
        everything: Whether the tables also have what is the same in all runs.
    """

    sides: Sequence[Side]
    everything: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return all of it as a JSON value."""
        from lab.analysis.comparison import as_json  # noqa: PLC0415

        return as_json(self.sides)

    @named_extras()
    def frame(self) -> pd.DataFrame:
        """Return the results: a row for each metric of the run and of each task."""
        import pandas as pd  # noqa: PLC0415

        comparison = self.to_json()
        parts = {"run": comparison["figures"], **comparison["tasks"]}
        rows = [(part, row) for part, several in parts.items() for row in several]
        index = pd.MultiIndex.from_tuples(
            [(part, row["name"]) for part, row in rows], names=["of", "metric"]
        )
        names = [side.label or side.summary.run_id for side in self.sides]
        return pd.DataFrame([row["values"] for _, row in rows], index, names)

    def _shown(self) -> Group:
        """Return what `lab compare` prints, with an empty line between two tables."""
        from lab.analysis.comparison import tables  # noqa: PLC0415

        parts = [*tables(self.sides, everything=self.everything)]
        return Group(parts[0], *(each for part in parts[1:] for each in (Text(), part)))


@reads_options
@named_extras()
@messages_shown()
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
    from lab.report.build import build, output_paths  # noqa: PLC0415
    from lab.report.loader import read_run, with_groups  # noqa: PLC0415
    from lab.reproduce.verdicts import read_evaluation  # noqa: PLC0415

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
    from lab.analysis.tensorboard import write_events  # noqa: PLC0415

    written = write_events([run.run for run in runs], folder)
    command = shlex.join(["tensorboard", "--logdir", str(folder)])
    LOG.info(f"{counted(len(written), 'event file')}: show them with `{visible(command)}`")
    return written


@reads_options
@named_extras()
@messages_shown()
def compare(
    *runs: NamedRuns,
    label: Labels = (),
    all_: Annotated[bool, Switch()] = False,
    runs_dir: RunsDir = None,
) -> Comparison:
    """Print runs side by side.

    Args:
        runs: Runs, ids, `last`, directories of runs, or archives of `lab export`. The first one is
            compared with the others.
        label: No label, one for each argument, or a single one for all of them.
        all_: Also list the settings and metrics that are the same.
        runs_dir: The run store.

    Raises:
        InputError: An argument names no run, or there are not two runs.
        LabError: Fewer than two runs can be read.
    """
    options = locals()
    store = runs_path(runs_dir)
    with open_runs(options["runs"], options["label"], store) as opened:
        if len(opened) == 1:
            raise InputError(f"run {opened[0].name} is the only run", "name another run")
        # Imported here: importing pandas takes half a second.
        from lab.analysis.comparison import read_side  # noqa: PLC0415

        prober = StatusProber(backends)
        sides = read_each(opened, lambda run: read_side(run, run.probe(prober)), at_least=2)
    return Comparison(sides, all_)
