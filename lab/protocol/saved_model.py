"""Save a trained model as one NumPy file, and load it without TensorFlow or a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from lab.base.files import atomic_writer
from lab.protocol.mnist import DataError

FILE: Final = "model.npz"

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class SavedModel:
    """A trained model.

    Attributes:
        model: `softmax` or `mlp`.
        global_step: The number of updates that the parameters received.
        parameters: Parameters by name, float32 arrays.
        averages: Moving averages of the parameters, by the same names; may be empty.
    """

    model: str
    global_step: int
    parameters: Mapping[str, Array]
    averages: Mapping[str, Array]


def save_model(directory: Path, saved: SavedModel) -> Path:
    """Write `model.npz` atomically: a reader finds the complete file or none.

    Raises:
        OSError: The directory is not writable, or the disk is full.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE
    arrays: dict[str, Array] = {
        "model": np.array(saved.model),
        "global_step": np.array(saved.global_step),
        **{f"parameters/{name}": value for name, value in saved.parameters.items()},
        **{f"averages/{name}": value for name, value in saved.averages.items()},
    }
    with atomic_writer(path) as file:
        np.savez(file, allow_pickle=False, **arrays)
    return path


def load_model(directory: Path) -> SavedModel:
    """Read `model.npz`.

    Raises:
        DataError: The file is missing or damaged.
    """
    path = directory / FILE
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return SavedModel(
                model=str(arrays["model"]),
                global_step=int(arrays["global_step"]),
                parameters=_below("parameters/", arrays),
                averages=_below("averages/", arrays),
            )
    except FileNotFoundError as error:
        raise DataError(f"{path}: is missing", "train the model first") from error
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise DataError(
            f"{path}: is not a saved model ({error})", "train the model again"
        ) from error


def _below(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
