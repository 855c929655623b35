"""The steps that a run makes: those that workers wait for, and those of a resumed run."""

from __future__ import annotations

from pathlib import Path

from lab.config import start_schedule as schedule
from lab.errors import InputError
from lab.experiments.registry import Experiment, defaults, hyperparameters
from lab.experiments.trigger import parse_trigger
from lab.placement.plan import Plan
from lab.run.prepare import check_resumable, inherited_args, resumed_end
from lab.store.directory import RunDir
from lab.store.status import RunStatus
from lab.volume import RunSpec


def check_joins(experiment: Experiment, spec: RunSpec, plan: Plan, data: Path | None) -> None:
    """Check that training reaches every step after which a worker joins.

    Raises:
        InputError: Training ends before one of the steps.
        DataError: The data cannot be read.
    """
    joins = any(parse_trigger(text).steps is not None for text in spec.start.values())
    if not experiment.steps_add_up or not joins:
        return
    parameters = defaults(experiment) | hyperparameters(experiment, spec.args)
    epochs, batch_size = parameters.get("epochs"), parameters.get("batch_size")
    if not isinstance(epochs, int) or not isinstance(batch_size, int):
        return  # the program itself refuses such values
    all_steps = parameters.get("global_steps") or 0
    schedule.check_joins(
        spec.start,
        [task.name for task in plan.tasks if task.job == schedule.WORKER],
        own_steps=0 if all_steps else epochs * (_training_images(data) // batch_size),
        all_steps=all_steps,
    )


def resumed_args(
    run: RunDir,
    status: RunStatus,
    experiment: Experiment,
    requested: RunSpec,
    data: Path | None,
) -> tuple[str, ...]:
    """Return all arguments of a program that resumes a run; the user's arguments take precedence.

    Raises:
        InputError: The run cannot be resumed.
        DataError: The data cannot be read.
    """
    info = check_resumable(run, experiment, None if data is None else str(data), status)
    given = hyperparameters(experiment, requested.args)
    if "checkpoint_dir" in given:
        raise InputError(
            f"--resume uses the checkpoints of run {run.run_id}", "leave out --checkpoint_dir"
        )
    argv = (*inherited_args(info, given), *requested.args)
    parameters = defaults(experiment) | hyperparameters(experiment, argv)
    if experiment.steps_add_up:
        argv += tuple(resumed_end(info, parameters, lambda: _training_images(data)))
    return argv


def _training_images(data: Path | None) -> int:
    from lab.mnist import load_mnist  # noqa: PLC0415  (imports NumPy, rarely needed here)

    return len(load_mnist(data).train)
