"""The saved model of a run: its file, its test data, and its forward pass in NumPy.

The forward passes compute the same as `scripts/mnist_model.py`.
"""

from __future__ import annotations

import struct
import tokenize
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lab.backends.names import capabilities
from lab.errors import InputError, LabError
from lab.mnist import CLASSES, PIXELS, DataError, Examples, Floats, load_test
from lab.saved_model import FILE, SavedModel, load_model
from lab.store.directory import RunDir
from lab.store.run_info import RunInfo

MODEL: Final = "model"
"""The name of the model's directory in the run's directory."""


def saved_model(run: RunDir, info: RunInfo) -> SavedModel:
    """Load the model that a run saved.

    Raises:
        LabError: The run saved none, or the file is damaged.
    """
    directory = run.path / MODEL
    if not (directory / FILE).is_file():
        raise LabError(f"run {info.run_id} ({info.state.value}) saved no model", _fix(info))
    try:
        return load_model(directory)
    except DataError as error:
        raise LabError(error.what, error.fix) from error
    # The exceptions that NumPy raises for a damaged archive.
    except (
        AttributeError, MemoryError, NotImplementedError, RuntimeError, SyntaxError, TypeError,
        struct.error, tokenize.TokenError, zlib.error,
    ) as error:  # fmt: skip
        what = f"{directory / FILE}: is not a saved model ({type(error).__name__}: {error})"
        raise LabError(what, "train the model again") from error


def _fix(info: RunInfo) -> str:
    if not info.state.ended:
        return f"wait until it has ended, then collect it with `lab collect {info.run_id}`"
    if info.state.value == "succeeded":
        return (
            "call lab.saved_model.save_model in its program, or use a run of another "
            "experiment; `lab runs` lists them"
        )
    return "use a run that succeeded; `lab runs` lists them"


def test_set(info: RunInfo, given: Path | None) -> Examples:
    """Load the test images of the run, or of the directory that the user names.

    Raises:
        InputError: They are missing or damaged.
    """
    directory = given if given is not None else _own_data(info)
    try:
        return load_test(directory)
    except DataError as error:
        raise InputError(error.what, error.fix) from error


def _own_data(info: RunInfo) -> Path | None:
    """Return the directory of the run's own data; None for the data of the project."""
    if not info.spec.data_dir:
        return None
    fix = "name the directory of the data with --data-dir"
    if capabilities(info.backend).containers:
        what = f"run {info.run_id} was tested on data in its containers, in {info.spec.data_dir}"
        raise InputError(what, fix)
    path = Path(info.spec.data_dir)
    if not path.is_dir():
        raise InputError(f"the data of run {info.run_id} is no longer in {path}", fix)
    return path


Probabilities = npt.NDArray[np.float64]

_HIDDEN: Final = "hidden"
"""The size of the hidden layer; each model has its own."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of model: the shapes of its parameters, and its forward pass."""

    shapes: Mapping[str, tuple[int | str, ...]]
    logits: Callable[[Mapping[str, Floats], Floats], Floats]


def _softmax(parameters: Mapping[str, Floats], images: Floats) -> Floats:
    return images @ parameters["weights"] + parameters["biases"]


def _mlp(parameters: Mapping[str, Floats], images: Floats) -> Floats:
    hidden: Floats = np.maximum(images @ parameters["weights1"] + parameters["biases1"], 0)
    return hidden @ parameters["weights2"] + parameters["biases2"]


_KINDS: Final[Mapping[str, _Kind]] = {
    "softmax": _Kind({"weights": (PIXELS, CLASSES), "biases": (CLASSES,)}, _softmax),
    "mlp": _Kind(
        {
            "weights1": (PIXELS, _HIDDEN),
            "biases1": (_HIDDEN,),
            "weights2": (_HIDDEN, CLASSES),
            "biases2": (CLASSES,),
        },
        _mlp,
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A model with its parameters.

    Attributes:
        kind: `softmax` or `mlp`.
        parameters: Name to array, float32, in the shapes of its kind.
        averages: Whether these are the moving averages of the parameters.
        source: The file of the model, for messages.
    """

    kind: str
    parameters: Mapping[str, Floats]
    averages: bool
    source: str

    def logits(self, images: Floats) -> Floats:
        """Return the logits [n, 10] of images [n, 784], float32 as in training.

        Raises:
            LabError: A logit is NaN or infinite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            logits = _KINDS[self.kind].logits(self.parameters, images)
        if not np.isfinite(logits).all():
            raise LabError(
                f"{self.source}: the model computes NaN or infinity",
                "train again with a smaller --learning_rate: the training diverged",
            )
        return logits

    def probabilities(self, images: Floats) -> Probabilities:
        """Return the probability of each digit for images [n, 784], float64 [n, 10]."""
        return softmax(self.logits(images))


def softmax(logits: Floats) -> Probabilities:
    """Return the softmax of logits [n, 10]: each row has the sum 1."""
    # The largest logit becomes 0, so that no exponential overflows.
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    probabilities: Probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities


def network(saved: SavedModel, *, averages: bool, source: str) -> Network:
    """Return the network of a saved model.

    Args:
        saved: The model.
        averages: Whether to use the moving averages of the parameters.
        source: The file of the model, for messages.

    Raises:
        InputError: The model has no moving averages.
        LabError: Its kind is unknown, or its parameters do not fit its kind.
    """
    kind = _KINDS.get(saved.model)
    if kind is None:
        known = " or ".join(_KINDS)
        raise LabError(
            f"{source}: unknown kind of model {saved.model!r}",
            f"use a model of kind {known}",
        )
    if averages and not saved.averages:
        raise InputError(
            f"{source}: its {saved.model} model has no moving averages",
            "leave out --averages",
        )
    found = saved.averages if averages else saved.parameters
    _check_shapes(found, kind.shapes, saved.model, source)
    parameters = {name: np.asarray(found[name], np.float32) for name in kind.shapes}
    return Network(saved.model, parameters, averages, source)


def _check_shapes(
    found: Mapping[str, npt.NDArray[Any]],
    wanted: Mapping[str, tuple[int | str, ...]],
    model: str,
    source: str,
) -> None:
    sizes: dict[str, int] = {}
    for name, shape in wanted.items():
        array = found.get(name)
        if array is None:
            what = f"has no parameter {name!r}; a model {model} needs it"
            raise LabError(f"{source}: {what}", "train the model again")
        fits = array.dtype.kind == "f" and array.ndim == len(shape)
        for size, want in zip(array.shape, shape, strict=False):
            fits = fits and size == (
                sizes.setdefault(want, size) if isinstance(want, str) else want
            )
        if not fits:
            what = f"has the parameter {name!r} as {array.dtype} of shape {list(array.shape)}"
            needed = ", ".join(
                str(sizes.get(each, each) if isinstance(each, str) else each) for each in shape
            )
            raise LabError(
                f"{source}: {what}, but a model {model} needs float32 of shape [{needed}]",
                "train the model again",
            )
