"""The steps that a run makes: those that workers wait for, and those of a resumed run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.config import validation
from lab.errors import InputError
from lab.experiments.faults import parse_trigger
from lab.experiments.registry import Experiment, hyperparameters, with_defaults
from lab.placement.plan import Plan
from lab.store.directory import RunDir, RunStatus
from lab.store.run_info import RunInfo
from lab.volume import RunSpec
from lab.volume.continuation import global_end, has_checkpoint


def check_joins(experiment: Experiment, spec: RunSpec, plan: Plan, data: Path | None) -> None:
    """Check that training reaches every step after which a worker joins.

    Raises:
        InputError: Training ends before one of the steps.
        DataError: The data cannot be read.
    """
    joins = any(parse_trigger(text).steps is not None for text in spec.start.values())
    if not experiment.steps_add_up or not joins:
        return
    parameters = with_defaults(experiment, spec.args)
    epochs, batch_size = parameters.get("epochs"), parameters.get("batch_size")
    if not isinstance(epochs, int) or not isinstance(batch_size, int):
        return  # the program itself refuses such values
    all_steps = parameters.get("global_steps") or 0
    validation.check_joins(
        spec.start,
        [task.name for task in plan.tasks if task.job == validation.WORKER],
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
    argv = (*_inherited_args(info, given), *requested.args)
    parameters = with_defaults(experiment, argv)
    if experiment.steps_add_up:
        end = global_end(parameters, epoch_workers(info), lambda: _training_images(data))
        argv += tuple(end)
    return argv


def check_resumable(
    run: RunDir, wanted: Experiment, data_dir: str | None, status: RunStatus
) -> RunInfo:
    """Check that a run can be resumed.

    Args:
        run: The run.
        wanted: The experiment to train.
        data_dir: The directory of the user's own data, or None.
        status: The status of the run.

    Raises:
        InputError: The run is of another experiment, used the user's own data and none is given,
            has not ended, is not completely collected, was imported, or has no checkpoint.
    """
    info = status.info
    if info.imported:
        raise InputError(
            f"run {run.run_id} was imported: it cannot be resumed", "resume a run of this host"
        )
    if info.spec.own or info.spec.experiment != wanted.name:
        raise InputError(
            f"run {run.run_id} is a run of {info.spec.experiment!r}, not of {wanted.name!r}",
            "resume it with its own experiment; a program of your own cannot be resumed",
        )
    if info.spec.data_dir and data_dir is None:
        raise InputError(
            f"run {run.run_id} was trained on your own data, {info.spec.data_dir}",
            "give the same data again with --data_dir",
        )
    if not status.state.ended:
        raise InputError(
            f"run {run.run_id} has not ended: it is {status.state.value}",
            status.note
            or f"end it with `lab cancel {run.run_id}`, and collect it with `lab attach`",
        )
    if status.note:
        raise InputError(
            f"run {run.run_id} is {status.state} and not completely collected", status.note
        )
    if not has_checkpoint(run.checkpoints):
        raise InputError(
            f"run {run.run_id} left no checkpoint in {run.checkpoints}",
            "start a new run; --checkpoint_every 10 saves a checkpoint every 10 seconds",
        )
    return info


def epoch_workers(info: RunInfo) -> int:
    """Return the number of workers whose epochs determine the end of a run, and of resumed runs."""
    return info.epoch_workers or len(info.cluster.get("worker", ()))


def _inherited_args(info: RunInfo, own: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arguments of a run for a run that resumes from it.

    `--global_steps` is left out if the user gives the epochs or the batch size anew.

    Args:
        info: The run.
        own: The program's flags that the user gives now, by name.
    """
    args = info.spec.args
    if not own.keys() & {"epochs", "batch_size"}:
        return args
    return tuple(argument for argument in args if not argument.startswith("--global_steps="))


def _training_images(data: Path | None) -> int:
    from lab.mnist import load_mnist  # noqa: PLC0415  (imports NumPy, rarely needed here)

    return len(load_mnist(data).train)
