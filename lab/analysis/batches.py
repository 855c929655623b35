"""Batches of runs: the runs of a batch share an environment and run one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lab import signals
from lab.analysis.grid import Point, RunResult
from lab.backends.environment import Environment
from lab.errors import LabError
from lab.formatting import number
from lab.log import LOG
from lab.run.prepared import PreparedRun
from lab.run.record import create_run
from lab.run.run_queue import turn
from lab.run.runner import execute_run, teardown
from lab.run.view import View
from lab.store.directory import RunDir
from lab.text import LONGEST_REASON, short


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


def run_batches(batches: Sequence[Batch]) -> Outcome:
    """Run all batches, and print the result of each run.

    An error or interrupt stops them. Each booted environment is removed.
    """
    outcome = Outcome()
    try:
        for batch in batches:
            _run(batch, outcome, run_count(batches))
    except (KeyboardInterrupt, LabError, OSError) as error:
        outcome.stopped = error
    return outcome


def _run(batch: Batch, outcome: Outcome, total: int) -> None:
    first = batch.first
    environment, run = first.environment, None

    def boot(defer: Callable[[], None]) -> Environment:
        nonlocal environment
        environment = first.boot(defer)
        return environment

    with signals.as_interrupt(), turn(first.backend, first.plan.name):
        try:
            for point in batch.points:
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
                _report(outcome.results[-1], f"{len(outcome.results)}/{total}")
                if len(outcome.results) == 1 and not outcome.results[0].succeeded:
                    raise LabError(
                        f"the first run {summary.state}; the other runs are skipped",
                        f"find the cause with `lab show {summary.run_id}`",
                    )
        finally:
            if first.environment is None and environment is not None and run is not None:
                with signals.ignore_signals():
                    teardown(run, environment)


def _report(result: RunResult, place: str) -> None:
    """Print a run's result; `place` is such as `3/12`."""
    summary = result.summary
    if result.succeeded:
        figures = result.metrics().items()
        text = ", ".join(f"{name} {number(round(value, 4))}" for name, value in figures)
    else:
        reason = f" ({short(summary.reason, LONGEST_REASON)})" if summary.reason else ""
        text = f"{summary.state}{reason}, see {summary.run_id}"
    LOG.info(f"{place} {result.point.line()}: {text}")
