"""Plan the runs of a source: one batch of runs for each number of workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.analysis.batches import Batch
from lab.analysis.grid import Point
from lab.errors import InputError
from lab.experiments.faults import parse
from lab.extras import check_extra
from lab.log import shown_once
from lab.project import Project
from lab.reproduce.claims import Recipe, Source
from lab.run.prepared import PreparedRun, RunOptions, prepare_run
from lab.store.directory import RunDir
from lab.store.names import named_runs, without_copies
from lab.volume import RunSpec

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
    backend: str,
    option: Sequence[str],
    gpus: str,
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
        backend: The backend's name, or `auto`.
        option: Options of the backend alone, `key=value`.
        gpus: How GPUs are pinned.

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
            options = RunOptions(
                spec=RunSpec(recipe.experiment, args=recipe.args, start=recipe.start),
                faults=[parse(line) for line in recipe.faults],
                backend=backend,
                option=option,
                gpus=gpus,
            )
            first = next(iter(prepared.values()), None)
            of_workers = project.with_workers(workers)
            prepared[role] = prepare_run(options, of_workers, runs_dir, beside=first)
        batches.append(_batch(alike, prepared, repeats or MAX_REPEATS, seed))
    return batches


def _batch(
    recipes: Mapping[str, Recipe], prepared: Mapping[str, PreparedRun], repeats: int, seed: int
) -> Batch:
    """The runs in one environment: each role once, then all again for each repeat."""
    points = [
        Point({_ROLE: role}, repeat)
        for repeat in range(repeats)
        for role, recipe in recipes.items()
        if repeat < recipe.runs
    ]

    def prepared_for(point: Point) -> PreparedRun:
        run = prepared[point.values[_ROLE]]
        return run.with_args(*run.spec.args, f"--seed={seed + point.repeat}")

    return Batch(points, next(iter(prepared.values())), prepared_for)


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
