"""The checkpoints of a run, for a run that resumes from them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

CHECKPOINT: Final = re.compile(r"model-[0-9]+\.(index|data-[0-9]{5}-of-[0-9]{5})|checkpoint")
"""The files of the programs' checkpoints."""


def has_checkpoint(folder: Path) -> bool:
    """Whether a run can resume from what this directory holds."""
    return any(folder.glob("model-*.index"))


def copy_checkpoints(source: Path, target: Path) -> None:
    """Copy the checkpoints of one directory into a new one.

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
    """The flag that ends a resumed run at the global step where the earlier run would have ended.

    It fits experiments in which each local step is an update: there the global steps are the sum of
    the workers' local steps, whatever the number of workers now.

    Args:
        parameters: The program's flags by name.
        workers: The number of workers in the earlier run.
        training_images: Counts the training images.

    Returns:
        `--global_steps=N`; nothing where the flags say so already, or where the program has no
        epochs.
    """
    epochs, batch_size = parameters.get("epochs"), parameters.get("batch_size")
    if parameters.get("global_steps") or not isinstance(epochs, int):
        return ()
    if not isinstance(batch_size, int):
        return ()  # the program refuses it
    return (f"--global_steps={epochs * (training_images() // batch_size) * workers}",)
