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
    import pandas as pd  # half a second: only for those who ask for a data frame

_COLUMNS: Final = ("task", "state", "local steps", "global step", "loss", "accuracy")


@dataclass(frozen=True, slots=True)
class Run:
    """A run in the local run store; its directory is read anew at each access.

    Attributes:
        directory: The directory, and what each file in it is called.
    """

    directory: RunDir

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.directory.path

    @property
    def id(self) -> str:
        """Its name, which is also that of its directory."""
        return self.directory.run_id

    @property
    def info(self) -> RunInfo:
        """How it was made, and where it stands: `run.json`.

        Raises:
            LabError: That is missing or unreadable.
        """
        return self.directory.read()

    @property
    def summary(self) -> Summary:
        """What it came to: `summary.json`; of a run that is under way, what it is at now.

        Raises:
            LabError: `run.json` is missing or unreadable.
        """
        known = read_summary(self.directory.summary_path) if self.directory.complete() else None
        return known or summarize(self.directory)

    def records(self, tasks: Collection[str] | None = None) -> pd.DataFrame:
        """All records, a row each: `task` and the fields of `lab.records.FIELDS`.

        Args:
            tasks: Only these tasks, as `["worker-0"]`; None: all.

        Raises:
            LabError: `run.json` is missing or unreadable.
        """
        from lab.run.dataframe import records_frame  # noqa: PLC0415

        return records_frame(self.directory, tasks)

    def steps(self, tasks: Collection[str] | None = None) -> pd.DataFrame:
        """Those records alone that stand behind a step of the training; as `records`.

        Raises:
            LabError: `run.json` is missing or unreadable.
        """
        from lab.run.dataframe import steps_frame  # noqa: PLC0415

        return steps_frame(self.directory, tasks)

    def _repr_html_(self) -> str:
        """Its table, as a notebook shows it."""
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
    """The run that is meant: its id, a unique beginning of it, or `last`.

    Args:
        argument: What it is called.
        runs_dir: Where runs are kept; None: `LAB_RUNS_DIR`, or `./runs`.

    Raises:
        InputError: No run, or several, fit.
        LabError: A `run.json` there is unreadable.
    """
    return Run(run_store.find_run(argument, runs_path(runs_dir)))


def runs(runs_dir: AnyPath | None = None) -> list[Run]:
    """All runs in the local run store, the oldest first.

    Args:
        runs_dir: Where runs are kept; None: `LAB_RUNS_DIR`, or `./runs`.

    Raises:
        LabError: A `run.json` there is unreadable.
    """
    return [Run(each) for each in run_store.all_runs(runs_path(runs_dir))]


def runs_path(runs_dir: AnyPath | None) -> Path:
    """Where runs are kept.

    Raises:
        InputError: It is there and is no directory.
    """
    return run_store.runs_dir(None if runs_dir is None else str(runs_dir))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_html(name)}</th>" for name in columns)
    lines = ["".join(f"<td>{_html(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html(text: str) -> str:
    return escape(visible(text))
