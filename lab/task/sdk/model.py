"""The saved model, as training programs import it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from lab.protocol.saved_model import Array, SavedModel, load_model, save_model
from lab.task.sdk.program import run_directory

__all__ = ["SavedModel", "load_model", "save_model", "save_trained"]


def save_trained(
    flags: argparse.Namespace,
    global_step: int,
    parameters: Mapping[str, Array],
    averages: Mapping[str, Array] | None = None,
) -> None:
    """Save a trained model in the run's directory, or in `--checkpoint_dir` without a run.

    Args:
        flags: The program's flags; `model` and `checkpoint_dir` are used if it has them.
        global_step: The number of updates that the parameters received.
        parameters: Parameters by name, float32 arrays.
        averages: Moving averages of the parameters, by the same names.

    Raises:
        OSError: The directory is not writable, or the disk is full.
    """
    run = run_directory()
    directory = run / "model" if run else getattr(flags, "checkpoint_dir", None)
    if directory:
        model = getattr(flags, "model", "softmax")
        save_model(directory, SavedModel(model, global_step, parameters, averages or {}))
