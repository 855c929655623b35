"""Runs in the local run store, and their results."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, SupportsIndex, overload

from rich.console import RenderableType
from rich.text import Text

from lab.backends.registry import backends
from lab.base.console import messages_shown
from lab.base.errors import InterruptError, LabError
from lab.base.formatting import counted
from lab.base.log import shown_by
from lab.base.options import Arguments, RepeatedFlag
from lab.base.shipped import named_extras
from lab.base.text import visible
from lab.cluster.project import AnyPath
from lab.runner.result_table import result_table
from lab.runner.status import StatusProber
from lab.runner.store.directory import RunDir, runs_path
from lab.runner.store.names import find_run
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summarize import summarize
from lab.runner.store.summary import Summary, read_summary
from lab.verbs.printing import Shown, Tabular

if TYPE_CHECKING:
    import pandas as pd  # importing it takes half a second, and most calls need no data frame
    from matplotlib.figure import Figure

    from lab.runner.run_list import Row

MAX_SHOWN: Final = 50
"""The maximum number of runs that a list shows; they are the newest."""


@dataclass(frozen=True, slots=True, repr=False)
class Run(Shown):
    """A run in the local run store; each access reads its directory again.

    Attributes:
        directory: The run's directory, with the paths of its files.
    """

    directory: RunDir

    def __fspath__(self) -> str:
        """Return the absolute path of its directory, which names the run in each function."""
        return str(self.path.absolute())

    @property
    def path(self) -> Path:
        """The run's directory."""
        return self.directory.path

    @property
    def id(self) -> str:
        """The run's id, which is also the name of its directory."""
        return self.directory.run_id

    @property
    def info(self) -> RunInfo:
        """The content of `run.json`: the run's options, environment and state.

        Raises:
            LabError: `run.json` is missing or unreadable.
        """
        return self.directory.read()

    @property
    def summary(self) -> Summary:
        """The content of `summary.json`; for a run under way, the summary so far.

        Raises:
            LabError: `run.json` is missing or unreadable.
        """
        known = read_summary(self.directory.summary_path) if self.directory.complete() else None
        return known or summarize(self.directory)

    @named_extras()
    def records(self, tasks: Collection[str] | None = None) -> pd.DataFrame:
        """Return all records, one row each: `task` and the fields of `lab.protocol.records.FIELDS`.

        Args:
            tasks: Only these tasks, such as `["worker-0"]`; None: all.

        Raises:
            LabError: `run.json` is missing or unreadable.
        """
        from lab.runner.store.dataframe import records_frame  # noqa: PLC0415

        with messages_shown():
            return records_frame(self.directory, tasks)

    @named_extras()
    def steps(self, tasks: Collection[str] | None = None) -> pd.DataFrame:
        """Return only the records of kind `step` and `epoch`, in the form of `records`.

        Raises:
            LabError: `run.json` is missing or unreadable.
        """
        from lab.runner.store.dataframe import steps_frame  # noqa: PLC0415

        with messages_shown():
            return steps_frame(self.directory, tasks)

    @named_extras()
    def figure(self, name: str) -> Figure:
        """Draw a figure of `lab report`, such as `loss`; `lab.figure` draws several runs.

        Args:
            name: loss, accuracy, progress, throughput or staleness.

        Raises:
            InputError: No figure has this name.
            LabError: The run has no data for it, or its `run.json` is missing or unreadable.
        """
        return figure(name, [self])

    def to_json(self) -> dict[str, Any]:
        """Return the summary."""
        return asdict(self.summary)

    def _shown(self) -> Sequence[RenderableType]:
        """Return the table that `lab show` prints; for a damaged run, the error."""
        try:
            return result_table(self.summary).renderables
        except (LabError, OSError) as error:
            return [Text(visible(f"run {self.id} is damaged: {error}"))]


class Runs(Tabular, list[Run]):
    """Runs, shown as the table of `lab runs`; a slice of them is `Runs`, too."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Run | Self:
        """Return one run, or several as `Runs`."""
        if isinstance(index, slice):
            return type(self)(super().__getitem__(index))
        return super().__getitem__(index)

    @named_extras()
    def frame(self) -> pd.DataFrame:
        """Return a row for each run: `run_id`, `experiment`, `state`, `accuracy` and others.

        The state of a run whose files cannot be read is `damaged`, and `reason` has the error.
        """
        import pandas as pd  # noqa: PLC0415

        from lab.runner.run_list import Row  # noqa: PLC0415

        with messages_shown():
            rows = self._rows()
        table = pd.DataFrame(rows, columns=list(Row.__annotations__)).drop(columns="note")
        return table.assign(started=pd.to_datetime(table["started"], utc=True))

    def to_json(self) -> list[dict[str, Any]]:
        """Return what `lab runs --json` prints of them."""
        return [asdict(row) for row in self._rows()]

    def _rows(self) -> list[Row]:
        from lab.runner.run_list import run_rows  # noqa: PLC0415  (a single run needs none of it)

        return run_rows(dict.fromkeys(_directories(self)), StatusProber(backends))

    def _shown(self) -> Sequence[RenderableType]:
        """Return the table of the newest runs, and a line for each run with a note."""
        if not self:
            return ["no runs"]
        from lab.runner.run_list import notes, runs_table  # noqa: PLC0415

        warnings: list[str] = []
        with shown_by(warnings.append):
            rows = self[-MAX_SHOWN:]._rows()
        lines = [*warnings, *notes(rows)]
        if len(self) > MAX_SHOWN:
            lines.insert(0, f"{counted(len(self) - MAX_SHOWN, 'earlier run')} not shown")
        return [runs_table(rows)[0], *map(Text, lines)]


NamedRuns = Annotated[
    Run | AnyPath, Arguments("runs: ids, last, last~1, directories, or archives", shows="RUN")
]


Labels = Annotated[
    str | Sequence[str],
    RepeatedFlag("one label for all runs, or one for each RUN, in order", shows="TEXT"),
]


def find(argument: str, runs_dir: AnyPath | None = None) -> Run:
    """Find a run by its id, a unique beginning of the id, or `last`.

    Args:
        argument: The id, its beginning, or `last`.
        runs_dir: The run store; None: `LAB_RUNS_DIR`, or `./runs`.

    Raises:
        InputError: No run matches, or several do.
        LabError: A `run.json` in the run store is unreadable.
    """
    return Run(find_run(argument, runs_path(runs_dir)))


@named_extras()
def figure(name: str, runs: Run | Iterable[Run]) -> Figure:
    """Draw a figure of `lab report` from one run or several.

    Nothing of `pyplot` is used, so `plt.close` is not needed.

    Args:
        name: loss, accuracy, progress, throughput or staleness.
        runs: The runs; those that differ only by their seed have a common line.

    Raises:
        InputError: No figure has this name, or there is no run.
        LabError: The runs have no data for it, or a `run.json` is missing or unreadable.
    """
    from lab.study.report.build import draw_figure  # noqa: PLC0415

    several = _directories([runs] if isinstance(runs, Run) else runs)
    with messages_shown():
        return draw_figure(name, several, StatusProber(backends))


def check_not_stopped(stopped: BaseException | None, interrupted: str) -> None:
    """Raise why several runs stopped before their end; an interrupt is an error that says where.

    Raises:
        LabError: The reason, or that they were interrupted.
    """
    if isinstance(stopped, KeyboardInterrupt):
        raise InterruptError(interrupted, "see the collected runs with `lab runs`")
    if stopped is not None:
        raise stopped


def _directories(runs: Iterable[Run]) -> list[RunDir]:
    return [run.directory for run in runs]
