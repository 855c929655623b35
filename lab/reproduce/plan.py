"""Plan the runs of a source: one batch of runs for each number of workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
from lab.reproduce.recipes import recipe_for
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


@dataclass(frozen=True, slots=True)
class ReproduceOptions:
    """The options of a reproduction.

    Attributes:
        backend: The backend's name, or `auto`.
        gpus: How GPUs are pinned.
        most: The most runs of each role; None: as many as the claim file asks for.
        seed: The seed of the first repeat; each further repeat adds 1.
        quick: Whether to run the quick listings.
        option: Options of the backend alone, `key=value`.
    """

    backend: str
    gpus: str
    most: int | None
    seed: int
    quick: bool
    option: Sequence[str] = ()


@shown_once()
def plan_reproduction(
    options: ReproduceOptions, source: Source, project: Project, runs_dir: Path
) -> list[Batch]:
    """Plan a source's runs, one batch for each number of workers; start nothing.

    Each message is shown once.

    Args:
        options: The options.
        source: The claims, and the recipes of the runs.
        project: The project.
        runs_dir: The local run store.

    Raises:
        LabError: The extra `report` is not installed, a run does not fit the config or the host, or
            no backend can be used.
    """
    check_extra("report")
    counts = dict.fromkeys(recipe.workers for recipe in source.recipes.values())
    return [_batch(options, source, project.with_workers(each), runs_dir, each) for each in counts]


def _batch(
    options: ReproduceOptions, source: Source, project: Project, runs_dir: Path, workers: int | None
) -> Batch:
    """The runs with this number of workers: each role once, then all again for each repeat."""
    recipes = {
        role: recipe_for(recipe, quick=options.quick)
        for role, recipe in source.recipes.items()
        if recipe.workers == workers and (recipe.in_quick or not options.quick)
    }
    points = [
        Point({_ROLE: role}, repeat)
        for repeat in range(options.most or MAX_REPEATS)
        for role, recipe in recipes.items()
        if repeat < recipe.runs
    ]
    prepared: dict[str, PreparedRun] = {}
    first = None
    for role, recipe in recipes.items():
        prepared[role] = prepare_run(_run_options(options, recipe), project, runs_dir, beside=first)
        first = first or prepared[role]

    def prepared_for(point: Point) -> PreparedRun:
        run = prepared[point.values[_ROLE]]
        return run.with_args(*run.spec.args, f"--seed={options.seed + point.repeat}")

    return Batch(points, next(iter(prepared.values())), prepared_for)


def _run_options(options: ReproduceOptions, recipe: Recipe) -> RunOptions:
    return RunOptions(
        spec=RunSpec(recipe.experiment, args=recipe.args, start=recipe.start),
        backend=options.backend,
        option=options.option,
        gpus=options.gpus,
        faults=[parse(line) for line in recipe.faults],
    )


def ended_runs(names: Iterable[str], runs_dir: Path) -> list[RunDir]:
    """Find runs by their directories, or by their ids in the local run store; each once.

    A directory of runs stands for all of them. Each copy that is left out is reported.

    Raises:
        InputError: There is no such run, or it has not ended.
    """
    found = [run for name in names for run in named_runs(name, runs_dir)]
    return [_ended(run.directory) for run in without_copies(found)]


def _ended(run: RunDir) -> RunDir:
    if not run.read().state.ended:
        raise InputError(
            f"run {run.run_id} has not ended, or is not fully collected",
            f"follow and collect it with `lab attach {run.run_id}`",
        )
    return run
