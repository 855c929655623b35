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
from lab.reproduce.claims import Source
from lab.reproduce.recipes import points, recipe_for, role_of_point, worker_counts
from lab.run.prepared import PreparedRun, RunOptions, prepare_run
from lab.store.directory import RunDir
from lab.store.names import named_runs, without_copies
from lab.volume import RunSpec

CONFIG: Final = "clusters/book.yaml"
"""The default config."""

MAX_REPEATS: Final = 100
"""The maximum number of runs of each role."""


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

    def batch(workers: int | None) -> Batch:
        resized = project.with_workers(workers)
        runs = points(source, workers, quick=options.quick, most=options.most)
        prepared: dict[str, PreparedRun] = {}
        first = None
        for role in dict.fromkeys(map(role_of_point, runs)):
            wanted = _run_options(options, source, role)
            prepared[role] = prepare_run(wanted, resized, runs_dir, beside=first)
            first = first or prepared[role]

        def prepared_for(point: Point) -> PreparedRun:
            run = prepared[role_of_point(point)]
            return run.with_args(*run.spec.args, f"--seed={options.seed + point.repeat}")

        return Batch(runs, next(iter(prepared.values())), prepared_for)

    return [batch(workers) for workers in worker_counts(source)]


def _run_options(options: ReproduceOptions, source: Source, role: str) -> RunOptions:
    wanted = recipe_for(source.recipes[role], quick=options.quick)
    args = tuple(f"--{name}={value}" for name, value in wanted.flags.items())
    return RunOptions(
        spec=RunSpec(wanted.experiment, args=args, start=wanted.start),
        backend=options.backend,
        option=options.option,
        gpus=options.gpus,
        faults=[parse(line) for line in wanted.faults],
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
