"""Runs of a sweep, and batches of them: they share an environment, one runs after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lab.base import signals
from lab.base.errors import LabError
from lab.base.formatting import number
from lab.base.log import LOG
from lab.base.text import LONGEST_REASON, short
from lab.protocol.volume.states import State
from lab.runner.prepared import PreparedRun
from lab.runner.record import create_run
from lab.runner.run_queue import turn
from lab.runner.runner import execute_run, place_of
from lab.runner.store.directory import RunDir
from lab.runner.store.measures import run_quantities
from lab.runner.store.summary import Summary
from lab.runner.view import View

WORKERS: Final = "workers"
"""The only parameter that is not a program flag: the number of tasks of job `worker`."""

METRICS: Final = ("accuracy", "images/s", "global steps/s")
"""The measures of a sweep, by their labels; `lab.runner.store.measures` has all."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a sweep.

    Attributes:
        values: The value of each parameter.
        repeat: 0 for the first run with these values.
    """

    values: Mapping[str, str]
    repeat: int

    @property
    def workers(self) -> int | None:
        """The number of workers; None: as in the config."""
        text = self.values.get(WORKERS)
        return None if text is None else int(text)

    @property
    def flags(self) -> tuple[str, ...]:
        """Its arguments for the program."""
        return tuple(f"--{name}={text}" for name, text in self.values.items() if name != WORKERS)

    def line(self) -> str:
        """Return its values in one line: `workers=4 learning_rate=1`."""
        return " ".join(f"{name}={text}" for name, text in self.values.items())


@dataclass(frozen=True, slots=True)
class RunResult:
    """One ended run of a sweep.

    Attributes:
        point: Its point of the grid.
        summary: Its summary.
    """

    point: Point
    summary: Summary

    @property
    def succeeded(self) -> bool:
        """Whether the run succeeded; only then its metrics count."""
        return self.summary.state == State.SUCCEEDED

    @property
    def diverged(self) -> bool:
        """Whether its loss or another metric is NaN or infinite."""
        has_lost = any(task.diverged_at is not None for task in self.summary.tasks)
        return has_lost or not all(map(math.isfinite, self._measured().values()))

    def metrics(self) -> dict[str, float]:
        """Return its finite metrics: its results, the test accuracy, and its speed.

        NaN and infinities are left out, because they have no mean.
        """
        found = self._measured()
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def _measured(self) -> dict[str, float]:
        measured = {each.name: each.value for each in self.summary.results}
        quantities = {label: value for label, value, _ in run_quantities(self.summary)}
        measured |= {label: quantities[label] for label in METRICS if label in quantities}
        return {name: value for name, value in measured.items() if value is not None}


def metric_names(results: Sequence[RunResult]) -> list[str]:
    """Return the names of the metrics of all runs, in order of appearance."""
    return list(dict.fromkeys(name for each in results for name in each.metrics()))


def combinations(points: Sequence[Point]) -> list[dict[str, str]]:
    """Return the distinct combinations of values, in the order of the points."""
    return list(map(dict, dict.fromkeys(tuple(point.values.items()) for point in points)))


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
    with (
        signals.as_interrupt(),
        turn(first.backend, first.plan.name),
        place_of(first) as place,
    ):
        for point in batch.points:
            run = create_run(batch.prepared_for(point))
            outcome.begun.append(run)
            _, summary = execute_run(run, place, View)
            outcome.results.append(RunResult(point, summary))
            _report(outcome.results[-1], f"{len(outcome.results)}/{total}")
            if len(outcome.results) == 1 and not outcome.results[0].succeeded:
                raise LabError(
                    f"the first run {summary.state}; the other runs are skipped",
                    f"find the cause with `lab show {summary.run_id}`",
                )


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
