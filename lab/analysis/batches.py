"""Batches of runs: the runs of a batch share an environment and run one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from lab import signals
from lab.analysis.grid import Point, RunResult
from lab.backends.environment import Environment
from lab.command_name import with_command_name
from lab.errors import LabError
from lab.formatting import number
from lab.log import LOG, shown_by
from lab.run.prepared import PreparedRun
from lab.run.record import create_run
from lab.run.run_queue import turn
from lab.run.runner import execute_run, teardown
from lab.run.view import View
from lab.store.directory import RunDir
from lab.text import LONGEST_REASON, bounded, short, visible, wrapped


@dataclass(frozen=True, slots=True)
class Batch:
    """Runs in one environment.

    Attributes:
        points: The points of the grid.
        first: The run whose environment all of them share.
        prepared_for: Makes the run at a point.
    """

    points: Sequence[Point]
    first: PreparedRun
    prepared_for: Callable[[Point], PreparedRun]


@dataclass(slots=True)
class Outcome:
    """The outcome of several batches.

    Attributes:
        results: The runs that have ended, in any state.
        begun: The runs that were begun; the last one may not have ended.
        stopped: The error or interrupt that stopped the batches; None: all runs have ended.
    """

    results: list[RunResult] = field(default_factory=list)
    begun: list[RunDir] = field(default_factory=list)
    stopped: LabError | OSError | KeyboardInterrupt | None = None


def run_count(batches: Sequence[Batch]) -> int:
    """Return the number of runs of all batches."""
    return sum(len(batch.points) for batch in batches)


def run_batches(batches: Sequence[Batch], *, quiet: bool = False) -> Outcome:
    """Run all batches, with a bar on a terminal unless `quiet` is set.

    An error or interrupt stops them. Each booted environment is removed.
    """
    outcome = Outcome()
    with _progress(run_count(batches), quiet=quiet) as progress:
        try:
            for batch in batches:
                _run(batch, progress, outcome)
        except (KeyboardInterrupt, LabError, OSError) as error:
            outcome.stopped = error
    return outcome


def _run(batch: Batch, progress: Progress, outcome: Outcome) -> None:
    first = batch.first
    environment, run = first.environment, None

    def boot(defer: Callable[[], None]) -> Environment:
        nonlocal environment
        environment = first.boot(defer)
        return environment

    with signals.as_interrupt(), turn(first.backend, first.plan.name):
        try:
            for point in batch.points:
                progress.begin(point.line())
                run = create_run(batch.prepared_for(point))
                outcome.begun.append(run)
                summary = execute_run(
                    run,
                    boot=boot,
                    running=environment,
                    keep=True,
                    view=lambda _info: View(),
                )
                outcome.results.append(RunResult(point, summary))
                progress.end(outcome.results[-1])
                if len(outcome.results) == 1 and not outcome.results[0].succeeded:
                    raise LabError(
                        f"the first run {summary.state}; the other runs are skipped",
                        f"find the cause with `lab show {summary.run_id}`",
                    )
        finally:
            if first.environment is None and environment is not None and run is not None:
                with signals.ignore_signals():
                    teardown(run, environment)


class Progress:
    """Counts the runs that have ended and reports the result of each."""

    def __init__(self, total: int, show: Callable[[int, str], None]) -> None:
        """Begin with no run.

        Args:
            total: The number of runs.
            show: Receives the number of ended runs and the values of the current run.
        """
        self._total = total
        self._done = 0
        self._line = ""
        self._show = show

    def begin(self, line: str) -> None:
        """Show the run that starts now."""
        self._line = line
        self._show(self._done, line)

    def end(self, result: RunResult) -> None:
        """Report a run's result."""
        self._done += 1
        self._show(self._done, self._line)
        summary = result.summary
        if result.succeeded:
            figures = result.metrics().items()
            text = ", ".join(f"{name} {number(round(value, 4))}" for name, value in figures)
        else:
            reason = f" ({short(summary.reason, LONGEST_REASON)})" if summary.reason else ""
            text = f"{summary.state}{reason}, see {summary.run_id}"
        LOG.info(f"{self._done}/{self._total} {result.point.line()}: {text}")


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Progress]:
    """Show the progress of `total` runs; on a terminal, as a bar below the lines."""
    console = Console(stderr=True, highlight=False)
    shown = not quiet and console.is_terminal and not console.is_dumb_terminal
    columns = (
        MofNCompleteColumn(), BarColumn(20), TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )  # fmt: skip

    def above(line: str) -> None:
        lines = wrapped(bounded(with_command_name(line)), console.width, indent="  ")
        console.print(Text("\n".join(lines)), soft_wrap=True)

    bar = Bar(*columns, console=console, transient=True, disable=not shown)
    with bar, shown_by(above) if shown else nullcontext():
        row = bar.add_task("", total=total)
        yield Progress(
            total,
            lambda done, line: bar.update(row, completed=done, description=visible(line)),
        )
