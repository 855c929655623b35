"""Plan a sweep: batches of runs, one batch for each environment."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final

from lab.analysis.batches import Batch
from lab.analysis.grid import Point, RunResult, check_over, grid
from lab.errors import LabError
from lab.experiments.registry import MAX_SEED, hyperparameters
from lab.extras import check_extra
from lab.formatting import counted
from lab.log import shown_once
from lab.project import Project
from lab.run.fitting import experiment_named
from lab.run.prepared import PreparedRun, RunOptions, prepare_run

REPEATS: Final = 3
"""The default number of repeats."""

MAX_REPEATS: Final = 1000
"""The maximum number of repeats."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """The options of a sweep.

    Attributes:
        run: The options that all runs have in common.
        over: The values of each quantity that is varied.
        repeats: The number of runs at each point.
        seed: The seed of the first repeat if the user gives none; each further repeat adds 1, so
            that every point has the same seeds.
    """

    run: RunOptions
    over: Mapping[str, tuple[str, ...]]
    repeats: int
    seed: int = field(default_factory=lambda: secrets.randbelow(MAX_SEED))


@shown_once()
def plan_sweep(options: SweepOptions, project: Project, runs_dir: Path) -> list[Batch]:
    """Plan all runs; start nothing. Each message is shown once.

    Args:
        options: The options.
        project: The project.
        runs_dir: The local run store.

    Raises:
        InputError: A quantity or a value is invalid.
        LabError: The extra `report` is not installed, a number of workers does not fit the config
            or the host, or no backend can be used here.
    """
    check_extra("report")
    requested = options.run.spec
    experiment = experiment_named(requested.experiment)
    given = hyperparameters(experiment, requested.args)
    check_over(options.over, experiment, given)
    seed = given.get("seed")
    first_seed = seed if isinstance(seed, int) else options.seed

    def prepared_for(first: PreparedRun, point: Point) -> PreparedRun:
        args = (*experiment.args, *requested.args, *point.flags)
        if "seed" in experiment.flags:
            args = (*args, f"--seed={first_seed + point.repeat}")
        return first.with_args(*args)

    batches = []
    for workers, group in groupby(grid(options.over, options.repeats), lambda each: each.workers):
        points = list(group)
        first = replace(
            options.run, spec=replace(requested, args=(*requested.args, *points[0].flags))
        )
        prepared = prepare_run(first, project.with_workers(workers), runs_dir)
        batches.append(Batch(points, prepared, partial(prepared_for, prepared)))
    return batches


def check_succeeded(results: Sequence[RunResult]) -> None:
    """Check that every run succeeded with the expected results.

    Raises:
        LabError: A run failed, or gave unexpected results.
    """
    bad = [each for each in results if not (each.succeeded and each.summary.as_expected)]
    if bad:
        raise LabError(
            f"{len(bad)} of {counted(len(results), 'run')} failed, or gave unexpected results",
            f"show the first of them with `lab show {bad[0].summary.run_id}`",
        )
