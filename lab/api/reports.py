"""Reports and comparisons of runs, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.api.planning import AnyPath
from lab.api.results import Run, runs_path
from lab.console import messages_shown
from lab.extras import named_extras
from lab.service.compare import compare_runs
from lab.service.report import Report, write_report
from lab.text import visible

if TYPE_CHECKING:
    import pandas as pd  # importing it takes half a second

    from lab.analysis.comparison import Side


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs side by side; differences and ratios are to the first run.

    Attributes:
        sides: The runs.
    """

    sides: Sequence[Side]

    @property
    def names(self) -> list[str]:
        """The columns of the tables: the label or the id of each run."""
        return [side.label or side.summary.run_id for side in self.sides]

    def to_dict(self) -> dict[str, Any]:
        """Return what `lab compare --json` prints."""
        from lab.analysis.comparison_view import as_json  # noqa: PLC0415

        return as_json(self.sides)

    @named_extras()
    def frame(self) -> pd.DataFrame:
        """Return the results: a row for each metric of the run and of each task."""
        import pandas as pd  # noqa: PLC0415

        found = self.to_dict()
        parts = {"run": found["figures"], **found["tasks"]}
        rows = [(part, row) for part, several in parts.items() for row in several]
        index = pd.MultiIndex.from_tuples(
            [(part, row["name"]) for part, row in rows], names=["of", "metric"]
        )
        return pd.DataFrame([row["values"] for _, row in rows], index, self.names)

    def settings(self) -> pd.DataFrame:
        """Return the settings that differ: a row for each, as texts."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame.from_dict(self.to_dict()["made"], orient="index", columns=self.names)

    def _repr_html_(self) -> str:
        """Return both tables for a notebook."""
        tables = (self.settings().map(visible), self.frame())
        shown = (
            each.rename(index=visible, columns=visible).to_html(na_rep="", escape=True)
            for each in tables
            if len(each)
        )
        return "".join(shown)


@named_extras()
@messages_shown()
def report(
    *runs: Run | AnyPath,
    output: AnyPath | None = None,
    labels: Sequence[str] = (),
    force: bool = False,
    runs_dir: AnyPath | None = None,
) -> Report:
    """Write one page with the figures and tables of runs, as `lab report` does.

    Args:
        runs: Runs, ids, `last`, directories of runs, or archives of `lab export`.
        output: The page; None: in the run's directory, for several in the run store. It is in the
            current directory if a run is outside the run store.
        labels: No label, one for each argument, or a single one for all of them.
        force: Whether to replace a file that is not a report.
        runs_dir: The run store; None: `LAB_RUNS_DIR`, or `./runs`.

    Raises:
        InputError: An argument names no run, or the page cannot be written there.
        LabError: No run can be read, or a file cannot be written.
    """
    store = runs_path(runs_dir)
    target = None if output is None else str(output)
    return write_report(_arguments(runs), store, labels=labels, output=target, force=force)


@named_extras()
@messages_shown()
def compare(
    *runs: Run | AnyPath, labels: Sequence[str] = (), runs_dir: AnyPath | None = None
) -> Comparison:
    """Compare runs, as `lab compare` does; a notebook shows the tables.

    Args:
        runs: Runs, ids, `last`, directories of runs, or archives of `lab export`.
        labels: No label, one for each argument, or a single one for all of them.
        runs_dir: The run store; None: `LAB_RUNS_DIR`, or `./runs`.

    Raises:
        InputError: An argument names no run, or there are not two runs.
        LabError: Fewer than two runs can be read.
    """
    return Comparison(compare_runs(_arguments(runs), runs_path(runs_dir), labels=labels))


def _arguments(runs: Sequence[Run | AnyPath]) -> list[str]:
    """Return each run as an argument of the command; a path has a slash."""
    return [
        str(each.path.absolute()) if isinstance(each, Run)
        else str(each.absolute()) if isinstance(each, Path)
        else str(each)
        for each in runs
    ]  # fmt: skip
