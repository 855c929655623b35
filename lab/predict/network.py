"""The forward passes of the saved models in NumPy: from images to logits.

They compute the same as `scripts/mnist_model.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lab.errors import InputError, LabError
from lab.mnist import CLASSES, PIXELS, Floats
from lab.saved_model import SavedModel

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
