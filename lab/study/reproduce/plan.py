"""Plan the runs of a source: one batch of runs for each number of workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from lab.base.errors import InputError
from lab.base.log import shown_once
from lab.base.shipped import check_extra
from lab.cluster.project import Project
from lab.protocol.experiments.faults import parse
from lab.protocol.volume import RunSpec
from lab.runner.prepared import PlaceOptions, PreparedRun, prepare_run
from lab.runner.store.directory import RunDir
from lab.runner.store.names import named_runs, without_copies
from lab.study.batches import Batch, Point
from lab.study.reproduce.claims import Source

CONFIG: Final = "clusters/book.yaml"
"""The default config."""

MAX_REPEATS: Final = 100
"""The maximum number of runs of each role."""

_ROLE: Final = "run"
"""The parameter of a point that has the role of its run."""


@shown_once()
def plan_reproduction(
    source: Source,
    project: Project,
    runs_dir: Path,
    *,
    repeats: int | None,
    seed: int,
    quick: bool,
    place: PlaceOptions,
) -> list[Batch]:
    """Plan a source's runs, one batch for each number of workers; start nothing.

    Each message is shown once.

    Args:
        source: The claims, and the recipes of the runs.
        project: The project.
        runs_dir: The local run store.
        repeats: The most runs of each role; None: as many as the claim file asks for.
        seed: The seed of the first repeat; each further repeat adds 1.
        quick: Whether to run the quick listings.
        place: Where the runs are made.

    Raises:
        LabError: The extra `report` is not installed, a run does not fit the config or the host, or
            no backend can be used.
    """
    check_extra("report")
    recipes = {
        role: recipe.variant(quick=quick)
        for role, recipe in source.recipes.items()
        if recipe.in_quick or not quick
    }
    batches = []
    for workers in dict.fromkeys(recipe.workers for recipe in recipes.values()):
        alike = {role: each for role, each in recipes.items() if each.workers == workers}
        prepared: dict[str, PreparedRun] = {}
        for role, recipe in alike.items():
            spec = RunSpec(recipe.experiment, args=recipe.args, start=recipe.start)
            of_workers, faults = project.with_workers(workers), [*map(parse, recipe.faults)]
            prepared[role] = prepare_run(spec, of_workers, runs_dir, place, faults=faults)
        points = [
            Point({_ROLE: role}, repeat)
            for repeat in range(repeats or MAX_REPEATS)
            for role, recipe in alike.items()
            if repeat < recipe.runs
        ]
        first_run, at = next(iter(prepared.values())), partial(_prepared_for, prepared, seed)
        batches.append(Batch(points, first_run, at))
    return batches


def _prepared_for(prepared: Mapping[str, PreparedRun], seed: int, point: Point) -> PreparedRun:
    """The run of a role, with the seed of its repeat."""
    run = prepared[point.values[_ROLE]]
    return run.with_args(*run.spec.args, f"--seed={seed + point.repeat}")


def ended_runs(names: Iterable[str], runs_dir: Path) -> list[RunDir]:
    """Find runs by their directories, or by their ids in the local run store; each once.

    A directory of runs stands for all of them. Each copy that is left out is reported.

    Raises:
        InputError: There is no such run, or it has not ended.
    """
    found = without_copies([run for name in names for run in named_runs(name, runs_dir)])
    for run in (each.directory for each in found):
        if not run.read().state.ended:
            raise InputError(
                f"run {run.run_id} has not ended, or is not fully collected",
                f"follow and collect it with `lab attach {run.run_id}`",
            )
    return [each.directory for each in found]
