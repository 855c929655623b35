"""A run's preparation: what a user asks for is written down before anything starts."""

from __future__ import annotations

import secrets
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from lab.plan import Plan
from lab.run.directory import RunDir, RunInfo, TaskRow
from lab.run.program import OwnProgram
from lab.run.provenance import git_state, versions
from lab.run.resume import copy_checkpoints, workers_of
from lab.task.experiments import Experiment
from lab.task.flags import training_flags
from lab.task.policy import OnFailure
from lab.task.protocol import STALL_S, new_run_id

MAX_SEED: Final = 2**31


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
            listing=order.program.listing,
            faithful=order.program.faithful,
            mend=order.program.mend,
        )
    run = RunDir(home / info.run_id)
    run.create(info)
    try:
        if order.program is not None:
            order.program.copy_to(run.program)
        if order.resumes is not None:
            copy_checkpoints(order.resumes, run)
            old = order.resumes.read()
            run.update(resumed_from=old.run_id, epoch_workers=workers_of(old))
    except BaseException:
        run.discard()
        raise
    return run


def with_seed(experiment: Experiment, argv: Sequence[str]) -> tuple[str, ...]:
    """The same words with a seed among them, drawn if none was given, so that it is recorded."""
    if "seed" not in experiment.flags or "seed" in hyperparameters(experiment, argv):
        return tuple(argv)
    return (f"--seed={secrets.randbelow(MAX_SEED)}", *argv)


def defaults(experiment: Experiment) -> dict[str, Any]:
    """What the program takes where nothing is given, as far as it does not depend on the model."""
    parser = training_flags("")
    known = {name: parser.get_default(name) for name in experiment.flags}
    return {name: value for name, value in known.items() if value is not None}


def hyperparameters(experiment: Experiment, argv: Sequence[str]) -> dict[str, Any]:
    """The program's flags among its words, with their values; the last one of a name counts."""
    found: dict[str, Any] = {}
    words = list(argv)
    for position, word in enumerate(words):
        name, equals, raw = word.removeprefix("--").partition("=")
        flag = experiment.flags.get(name)
        if flag is None or not word.startswith("--"):
            continue
        if not equals:
            following = words[position + 1 : position + 2]
            raw = "true" if flag.is_switch or not following else following[0]
        try:
            value = flag.parse(raw)
        except (ValueError, ArgumentTypeError):  # behind `--`, unchecked: the program refuses it
            value = raw
        found[name] = value if isinstance(value, int | float | str | bool) else str(value)
    return found


def _place(plan: Plan) -> Iterator[TaskRow]:
    for task in plan.tasks:
        yield {
            "task": task.name,
            "node": task.node,
            "address": f"{task.node}:{task.port}",
            "gpus": task.gpus,
        }
