"""A run that goes on from another's checkpoints, to the end that the other would have had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lab.errors import InputError
from lab.run.directory import RunDir, RunInfo
from lab.run.standing import Standing
from lab.task.checkpoints import global_end, has_checkpoint
from lab.task.experiments import Experiment


def check_resumable(
    run: RunDir, wanted: Experiment, data_dir: str | None, stands: Standing
) -> RunInfo:
    """See that a run can be gone on from.

    Args:
        run: The run.
        wanted: The experiment that is to be trained.
        data_dir: The directory with one's own data that was given, or None.
        stands: Where it stands.

    Raises:
        InputError: It is another experiment's, was trained on data of one's own and none is given,
            has not ended, is not all at home, or left no checkpoint.
    """
    info = run.read()
    if info.own or info.experiment != wanted.name:
        raise InputError(
            f"run {run.run_id} is one of {info.experiment!r}, not of {wanted.name!r}",
            "resume the programs of this project by their own experiment",
        )
    if info.data_dir and data_dir is None:
        raise InputError(
            f"run {run.run_id} was trained on data of your own, {info.data_dir}",
            "give it again, with --data_dir",
        )
    if not stands.state.ended:
        raise InputError(
            f"run {run.run_id} has not ended: it is {stands.state.value}",
            stands.note
            or f"end it with `lab cancel {run.run_id}`, and bring it home with `lab collect`",
        )
    if stands.note:
        raise InputError(f"run {run.run_id} is not at home: it is {stands.state}", stands.note)
    if not has_checkpoint(run.checkpoints):
        raise InputError(
            f"run {run.run_id} left no checkpoint in {run.checkpoints}",
            "begin anew; --checkpoint_every 10 saves one every 10 seconds",
        )
    return info


def end_of(
    info: RunInfo, parameters: Mapping[str, Any], training_images: Callable[[], int]
) -> Sequence[str]:
    """The further words that let a program end where the run would have that it goes on from.

    Args:
        info: The run that it goes on from.
        parameters: The program's flags by name, as they are now.
        training_images: Counts the training images.
    """
    return global_end(parameters, workers_of(info), training_images)


def workers_of(info: RunInfo) -> int:
    """How many workers' epochs make the end of a run, and of those that go on from it."""
    return info.epoch_workers or len(info.cluster.get("worker", ()))


def inherited(info: RunInfo, own: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a run for those that go on from it.

    Its end by the global step is none of them where the user counts in epochs or batches anew.

    Args:
        info: The run.
        own: The program's flags by name, as far as the user gives them now.
    """
    if not own.keys() & {"epochs", "batch_size"}:
        return info.argv
    return tuple(word for word in info.argv if not word.startswith("--global_steps="))
