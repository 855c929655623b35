"""How a run is to begin, go on and end, from the flags of `lab run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.cli.output import say
from lab.config import Cluster
from lab.errors import InputError
from lab.placement import start_schedule as schedule
from lab.placement.plan import Plan
from lab.run import resume
from lab.run.directory import RunDir, find_run
from lab.run.faulting import settle
from lab.run.launch import Terms
from lab.run.standing import Ask, told
from lab.task.experiments import Experiment, defaults, hyperparameters
from lab.task.faults import Fault, parse
from lab.task.policy import OnFailure, Policy
from lab.task.protocol import READY_S
from lab.task.when import parse_when


def terms(
    wanted: Experiment,
    cluster: Cluster,
    plan: Plan,
    *,
    own: bool,
    policy: Policy | None,
    start: Mapping[str, str],
    ready_s: float | None,
    stall_s: float,
    faults: Sequence[Fault],
) -> Terms:
    """Put together what the flags and the description say.

    Args:
        wanted: The experiment.
        cluster: The description; the flag wins over what it says of the start.
        plan: The placement.
        own: Whether it is a program of the user's own, which may never say that it is ready.
        policy: What becomes of the run when a task fails; None: as the experiment has it.
        start: The flag's schedule.
        ready_s: Seconds within which every program must be ready; None: as usual.
        stall_s: Seconds without a step that are too many.
        faults: What is to be done to it, beside what experiment and description say.

    Raises:
        InputError: The schedule, the policy or a fault does not fit.
    """
    moments = {**cluster.start, **start}
    schedule.check_start(moments, [task.name for task in plan.tasks])
    joins = [task for task, text in moments.items() if parse_when(text).steps is not None]
    if wanted.gang and joins:
        raise InputError(
            f"experiment {wanted.name!r} makes no step without {joins[0]}, which waits for one",
            "give it a time, such as 10s",
        )
    policy = policy or wanted.policy
    if policy.on_failure is OnFailure.CONTINUE and not (own or wanted.steps_add_up):
        raise InputError(
            f"experiment {wanted.name!r} cannot go on without one of its workers",
            "take --on-failure fail, or restart",
        )
    return Terms(
        stall_s=stall_s,
        ready_s=(0.0 if own else READY_S) if ready_s is None else ready_s,
        start=moments,
        on_failure=policy.on_failure,
        restarts=policy.restarts,
        faults=settle(
            [*map(parse, (*wanted.faults, *cluster.faults)), *faults],
            {task.name: task.node for task in plan.tasks},
            stall_s,
            say,
        ),
    )


def check_joins(
    wanted: Experiment,
    words: Sequence[str],
    plan: Plan,
    start: Mapping[str, str],
    data: Path | None,
) -> None:
    """See that every step comes after which a worker is to join.

    Args:
        wanted: The experiment.
        words: All words for the program.
        plan: The placement.
        start: Task to moment.
        data: The directory with the user's own data, or None.

    Raises:
        InputError: One of them never comes.
        DataError: The data cannot be read.
    """
    if not wanted.steps_add_up or all(parse_when(text).steps is None for text in start.values()):
        return
    parameters = defaults(wanted) | hyperparameters(wanted, words)
    epochs, batch_size = parameters.get("epochs"), parameters.get("batch_size")
    if not isinstance(epochs, int) or not isinstance(batch_size, int):
        return  # the program refuses them
    all_steps = parameters.get("global_steps") or 0
    schedule.check_joins(
        start,
        [task.name for task in plan.tasks if task.job == schedule.WORKER],
        own_steps=0 if all_steps else epochs * (_training_images(data) // batch_size),
        all_steps=all_steps,
    )


def resumed(
    word: str, home: Path, wanted: Experiment, own: Sequence[str], data: Path | None, *, ask: Ask
) -> tuple[RunDir, tuple[str, ...]]:
    """The run to go on from, and all words for the program.

    Args:
        word: How the user names the run.
        home: The directory of all runs.
        wanted: The experiment.
        own: The user's own words for the program, which win over that run's.
        data: The directory with the user's own data, or None.
        ask: Looks for a run on the run volumes.

    Raises:
        InputError: There is no such run, or it cannot be gone on from.
        DataError: The data cannot be read.
    """
    run = find_run(word, home)
    stands = told(run, ask, say)
    info = resume.check_resumable(run, wanted, None if data is None else str(data), stands)
    given = hyperparameters(wanted, own)
    if "checkpoint_dir" in given:
        raise InputError(
            f"--resume takes the checkpoints of run {run.run_id}", "leave out --checkpoint_dir"
        )
    words = (*resume.inherited(info, given), *own)
    parameters = defaults(wanted) | hyperparameters(wanted, words)
    if wanted.steps_add_up:
        words += tuple(resume.end_of(info, parameters, lambda: _training_images(data)))
    return run, words


def _training_images(data: Path | None) -> int:
    from lab.task.data import load_mnist  # noqa: PLC0415  (NumPy, which few runs need here)

    return len(load_mnist(data).train)
