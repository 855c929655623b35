"""Plan a sweep such as `workers=1,2,4; learning_rate=0.1,1`: one batch for each environment."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from lab.base.converters import whole
from lab.base.errors import InputError, LabError
from lab.base.formatting import counted
from lab.base.log import shown_once
from lab.base.shipped import check_extra
from lab.base.text import suggestion
from lab.cluster.config.cluster import MAX_TASKS
from lab.cluster.experiments import experiment_named
from lab.cluster.project import Project
from lab.protocol.experiments.experiment import MAX_SEED, Experiment, hyperparameters
from lab.protocol.volume import RunSpec
from lab.runner.prepared import PlaceOptions, PreparedRun, prepare_run
from lab.study.batches import WORKERS, Batch, Point, RunResult

_FORM: Final = "NAME=VALUE,VALUE; …, such as workers=1,2,4; learning_rate=0.1,1"

Over = Mapping[str, tuple[str, ...]]
"""Parameter to its values, as the user typed them and in that order."""

REPEATS: Final = 3
"""The default number of repeats."""

MAX_REPEATS: Final = 1000
"""The maximum number of repeats."""


def parse_over(text: str) -> dict[str, tuple[str, ...]]:
    """Parse `workers=1,2,4; learning_rate=0.1,1`.

    Raises:
        ValueError: The text does not have this form.
    """
    found: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        name, equals, several = part.partition("=")
        name, values = name.strip(), tuple(each.strip() for each in several.split(","))
        if not equals or not name or not all(values) or name in found:
            raise ValueError(_FORM)
        found[name] = values
    if not found:
        raise ValueError(_FORM)
    return found


def check_over(over: Over, experiment: Experiment, fixed: Collection[str]) -> None:
    """Check that a sweep fits an experiment.

    Args:
        over: The parameters and their values.
        experiment: The experiment.
        fixed: The flags that the user gave for all runs.

    Raises:
        InputError: A parameter is unknown, or a value is invalid.
    """
    known = [WORKERS, *experiment.flags]
    for name, values in over.items():
        if name not in known:
            hint = suggestion(name, known)
            raise InputError(
                f"--over: experiment {experiment.name!r} has no flag {name!r}",
                f"{hint}see `lab experiments {experiment.name}`, or use {WORKERS}",
            )
        if name == "seed":
            raise InputError(
                "--over: each repeat has its own seed", "leave out seed, and use --repeats"
            )
        if name in fixed:
            raise InputError(f"--{name} is given, but --over varies it", "leave out one of them")
        if len({_parse_value(name, text, experiment) for text in values}) < len(values):
            raise InputError(f"--over: {name} has a value twice", "leave out one of them")


def _parse_value(name: str, text: str, experiment: Experiment) -> object:
    """Return the value that the program parses: 1 and 1.0 are the same rate."""
    if name == WORKERS:
        try:
            return whole(1, MAX_TASKS)(text)
        except ValueError:
            raise InputError(
                f"--over: {WORKERS}={text!r} is not a number of workers",
                f"give 1 to {MAX_TASKS:,}",
            ) from None
    try:
        return experiment.flags[name].parse(text)
    except ValueError as error:
        raise InputError(
            f"--over: {name}: {text!r} is not {error}", f"see `lab experiments {experiment.name}`"
        ) from None


def grid(over: Over, repeats: int) -> list[Point]:
    """Return all points; points with the same number of workers share an environment.

    Within these, each combination comes once before any comes twice. So an interrupted sweep has
    results for all combinations.
    """
    worker_counts: tuple[str | None, ...] = over.get(WORKERS, (None,))
    rest = {name: values for name, values in over.items() if name != WORKERS}
    found = []
    for workers, repeat in itertools.product(worker_counts, range(repeats)):
        for combination in itertools.product(*rest.values()):
            chosen = dict(zip(rest, combination, strict=True))
            if workers is not None:
                chosen[WORKERS] = workers
            found.append(Point({name: chosen[name] for name in over}, repeat))
    return found


@shown_once()
def plan_sweep(
    requested: RunSpec,
    place: PlaceOptions,
    over: Over,
    repeats: int,
    *,
    project: Project,
    runs_dir: Path,
) -> list[Batch]:
    """Plan all runs; start nothing. Each message is shown once.

    Every point has the same seeds: that of the user, or a random one, plus 1 for each repeat.

    Args:
        requested: What all runs have in common.
        place: Where they are made.
        over: The values of each quantity that is varied.
        repeats: The number of runs at each point.
        project: The project.
        runs_dir: The local run store.

    Raises:
        InputError: A quantity or a value is invalid.
        LabError: The extra `report` is not installed, a number of workers does not fit the config
            or the host, or no backend can be used here.
    """
    check_extra("report")
    experiment = experiment_named(requested.experiment, project.root)
    given = hyperparameters(experiment, requested.args)
    check_over(over, experiment, given)
    seed = given.get("seed")
    first_seed = seed if isinstance(seed, int) else secrets.randbelow(MAX_SEED)

    def prepared_for(first: PreparedRun, point: Point) -> PreparedRun:
        args = (*experiment.args, *requested.args, *point.flags)
        if "seed" in experiment.flags:
            args = (*args, f"--seed={first_seed + point.repeat}")
        return first.with_args(*args)

    batches = []
    for workers, group in itertools.groupby(grid(over, repeats), lambda each: each.workers):
        points = list(group)
        first = replace(requested, args=(*requested.args, *points[0].flags))
        prepared = prepare_run(first, project.with_workers(workers), runs_dir, place)
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
