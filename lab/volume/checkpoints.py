"""Find and copy the checkpoints of a run for a run that resumes from them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.volume.run_spec import registered

if TYPE_CHECKING:
    from lab.volume.request import Request
    from lab.volume.status import TaskStatus

CHECKPOINT: Final = re.compile(r"model-[0-9]+\.(index|data-[0-9]{5}-of-[0-9]{5})|checkpoint")
"""The files of the programs' checkpoints."""


def has_checkpoint(folder: Path) -> bool:
    """Whether a directory contains a checkpoint from which a run can resume."""
    return any(folder.glob("model-*.index"))


def next_step(request: Request, statuses: Mapping[str, TaskStatus]) -> str:
    """Return how to continue a run that is ended early, for the reason of its end.

    Only experiments with the flag `checkpoint_dir` save checkpoints, after their first step.
    """
    experiment = registered(request.spec)
    saves = experiment is not None and "checkpoint_dir" in experiment.flags
    has_stepped = any(status.global_step for status in statuses.values())
    if saves and (has_stepped or request.spec.resumed_from):
        return f"continue with --resume {request.run_id}"
    return "start it again"


def copy_checkpoints(source: Path, target: Path) -> None:
    """Copy the checkpoints of one directory into a new directory.

    Raises:
        OSError: A file cannot be read or written.
    """
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if CHECKPOINT.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            shutil.copyfile(path, target / path.name)


def global_end(
    parameters: Mapping[str, Any], workers: int, training_images: Callable[[], int]
) -> tuple[str, ...]:
    """Return the flag that ends a resumed run at the planned last step of the earlier run.

    It is valid only for experiments in which each local step is an update. In these the global step
    is the sum of the workers' local steps, for any number of workers.

    Args:
        parameters: The program's flags by name.
        workers: The number of workers in the earlier run.
        training_images: Returns the number of training images.

    Returns:
        `--global_steps=N`; empty if the flags already have it, or if the program has no epochs.
    """
    epochs, batch_size = parameters.get("epochs"), parameters.get("batch_size")
    if parameters.get("global_steps") or not isinstance(epochs, int):
        return ()
    if not isinstance(batch_size, int):
        return ()  # the program refuses it
    return (f"--global_steps={epochs * (training_images() // batch_size) * workers}",)
