"""Runs in the local run store, and their results."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.api.planning import AnyPath
from lab.formatting import loss, share, whole
from lab.formatting import seconds as _seconds
from lab.run import store as run_store
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.run.summarize import summarize
from lab.run.summary import Summary, read_summary
from lab.task.text import LONGEST_REASON, short, visible

if TYPE_CHECKING:
    import pandas as pd  # importing it takes half a second, and most calls need no data frame

_COLUMNS: Final = ("task", "state", "local steps", "global step", "loss", "accuracy")


@dataclass(frozen=True, slots=True)
class Run:
    """A run in the local run store; each access reads its directory again.

    Attributes:
        directory: The run's directory, with the paths of its files.
    """

    directory: RunDir

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

    def records(self, tasks: Collection[str] | None = None) -> pd.DataFrame:
        """Return all records, one row each: `task` and the fields of `lab.records.FIELDS`.

        Args:
            tasks: Only these tasks, such as `["worker-0"]`; None: all.

        Raises:
            LabError: `run.json` is missing or unreadable.
        """
        from lab.run.dataframe import records_frame  # noqa: PLC0415

        return records_frame(self.directory, tasks)

    def steps(self, tasks: Collection[str] | None = None) -> pd.DataFrame:
        """Return only the records of kind `step` and `epoch`, in the form of `records`.

        Raises:
            LabError: `run.json` is missing or unreadable.
        """
        from lab.run.dataframe import steps_frame  # noqa: PLC0415

        return steps_frame(self.directory, tasks)

    def _repr_html_(self) -> str:
        """Return the run's table for a notebook."""
        summary = self.summary
        reason = f" ({short(summary.reason, LONGEST_REASON)})" if summary.reason else ""
        after = f" after {_seconds(summary.wall_s)}" if summary.wall_s is not None else ""
        head = f"run {self.id}: {summary.experiment} on {summary.backend}, {summary.state}{after}"
        rows = [
            (
                task.task,
                task.state,
                whole(task.local_step),
                whole(task.global_step),
                loss(task.loss),
                share(task.accuracy),
            )
            for task in summary.tasks
        ]
        accuracy = share(summary.accuracy)
        foot = f"accuracy of the final parameters: {accuracy}" if accuracy else ""
        return f"<p>{_html(head + reason)}</p>{_table(_COLUMNS, rows)}<p>{_html(foot)}</p>"


def find(argument: str, runs_dir: AnyPath | None = None) -> Run:
    """Find a run by its id, a unique beginning of the id, or `last`.

    Args:
        argument: The id, its beginning, or `last`.
        runs_dir: The run store; None: `LAB_RUNS_DIR`, or `./runs`.

    Raises:
        InputError: No run matches, or several do.
        LabError: A `run.json` in the run store is unreadable.
    """
    return Run(run_store.find_run(argument, runs_path(runs_dir)))


def runs(runs_dir: AnyPath | None = None) -> list[Run]:
    """Return all runs in the local run store, the oldest first.

    Args:
        runs_dir: The run store; None: `LAB_RUNS_DIR`, or `./runs`.

    Raises:
        LabError: A `run.json` in the run store is unreadable.
    """
    return [Run(each) for each in run_store.all_runs(runs_path(runs_dir))]


def runs_path(runs_dir: AnyPath | None) -> Path:
    """Return the path of the run store.

    Raises:
        InputError: The path exists and is not a directory.
    """
    return run_store.runs_dir(None if runs_dir is None else str(runs_dir))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_html(name)}</th>" for name in columns)
    lines = ["".join(f"<td>{_html(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html(text: str) -> str:
    return escape(visible(text))
