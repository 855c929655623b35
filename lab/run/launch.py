"""A run's preparation: what a user asks for is written down before anything starts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from lab.placement.plan import Plan
from lab.run.directory import RunDir, RunInfo, TaskRow
from lab.run.program import OwnProgram
from lab.run.provenance import git_state, versions
from lab.run.resume import workers_of
from lab.task.checkpoints import copy_checkpoints
from lab.task.experiments import Experiment, defaults, hyperparameters, with_seed
from lab.task.policy import OnFailure
from lab.task.protocol import STALL_S, new_run_id


@dataclass(frozen=True, slots=True)
class Terms:
    """How a run begins, what may happen to it, and when it has failed; as in `RunInfo`.

    Attributes:
        stall_s: Seconds without a new global step after which it has failed; 0: no limit.
        ready_s: Seconds within which every program must be ready; 0: no limit.
        start: Task to the moment at which it starts, where that is not with the others.
        on_failure: What becomes of the run when a task fails.
        restarts: How often each task is started again at most.
        faults: What is to be done to it, a line each.
    """

    stall_s: float = STALL_S
    ready_s: float = 0.0
    start: Mapping[str, str] = field(default_factory=dict)
    on_failure: OnFailure = OnFailure.FAIL
    restarts: int = 0
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """What a user asks for, checked.

    Attributes:
        experiment: The experiment.
        argv: The words for its program: flags first, then what stood behind `--`.
        plan: The placement.
        root: The project's directory.
        cluster_file: The description; None where it stands in no file.
        data_dir: A student's own data as a task sees it, or "".
        program: The user's own program, if it is none of the registry.
        terms: How the run begins, and when it has failed.
        resumes: The run whose checkpoints it goes on from, or None.
    """

    experiment: Experiment
    argv: tuple[str, ...]
    plan: Plan
    root: Path
    cluster_file: Path | None
    data_dir: str
    program: OwnProgram | None = None
    terms: Terms = Terms()
    resumes: RunDir | None = None


def prepare(order: Order, home: Path) -> RunDir:
    """Create `runs/<id>/run.json`, before anything starts.

    Raises:
        OSError: The directory cannot be written; it is removed.
    """
    argv = with_seed(order.experiment, order.argv)
    parameters = defaults(order.experiment) | hyperparameters(order.experiment, argv)
    seed = parameters.get("seed")
    info = RunInfo(
        run_id=new_run_id(order.experiment.name),
        experiment=order.experiment.name,
        program=order.experiment.program,
        project=order.plan.name,
        argv=argv,
        hyperparameters=parameters,
        seed=seed if isinstance(seed, int) else None,
        data_dir=order.data_dir,
        cluster=order.plan.cluster_spec(),
        cluster_file=str(order.cluster_file or ""),
        cluster_sha256=order.plan.cluster_sha256,
        services=order.experiment.services,
        tasks=tuple(_place(order.plan)),
        gpus=tuple(dict.fromkeys(gpu for task in order.plan.tasks for gpu in task.gpus)),
        plan=asdict(order.plan),
        git=git_state(order.root),
        versions=versions(),
        started_unix=time.time(),
        own=order.program is not None,
        gang=order.experiment.gang,
        **asdict(order.terms),
    )
    if order.program is not None:
        info = replace(
            info,
            cluster_flags=order.program.cluster_flags,
            programs=order.program.programs,
            listing=order.program.listing,
            faithful=order.program.faithful,
            mend=order.program.mend,
        )
    run = RunDir(home / info.run_id)
    run.create(info)
    try:
        if order.program is not None:
            order.program.copy_to(run.program, run.files, run.original)
        if order.resumes is not None:
            copy_checkpoints(order.resumes.checkpoints, run.checkpoints)
            old = order.resumes.read()
            run.update(resumed_from=old.run_id, epoch_workers=workers_of(old))
    except BaseException:
        run.discard()
        raise
    return run


def _place(plan: Plan) -> Iterator[TaskRow]:
    for task in plan.tasks:
        yield {
            "task": task.name,
            "node": task.node,
            "address": f"{task.node}:{task.port}",
            "gpus": task.gpus,
        }
