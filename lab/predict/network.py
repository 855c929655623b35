"""The forward passes of the saved models, in NumPy: images in, logits out.

They are those of `scripts/mnist_model.py`, without TensorFlow and without parameter servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lab.errors import InputError, LabError
from lab.task.sdk.data import CLASSES, PIXELS, Floats
from lab.task.sdk.model import SavedModel

Shares = npt.NDArray[np.float64]

_HIDDEN: Final = "hidden"
"""A size that the model itself chooses; within one model it is the same everywhere."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of model: the shapes of its parameters, and what it does with images."""

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
    """A model that can answer.

    Attributes:
        kind: `softmax` or `mlp`.
        parameters: Name to array, float32, in the shapes of its kind.
        averages: Whether these are the moving averages of the parameters.
        source: Where it comes from, for messages.
    """

    kind: str
    parameters: Mapping[str, Floats]
    averages: bool
    source: str

    def logits(self, images: Floats) -> Floats:
        """Images [n, 784] to logits [n, 10], float32 as in training.

        Raises:
            LabError: The answers are no numbers.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            answers = _KINDS[self.kind].logits(self.parameters, images)
        if not np.isfinite(answers).all():
            raise LabError(
                f"{self.source}: the model answers with infinities or with what is no number",
                "its training diverged: train again with a smaller --learning_rate",
            )
        return answers

    def probabilities(self, images: Floats) -> Shares:
        """Images [n, 784] to the probability of each digit, float64 [n, 10]."""
        return softmax(self.logits(images))


def softmax(logits: Floats) -> Shares:
    """Logits [n, 10] to shares that add up to 1 in each row."""
    # The largest becomes 0, so that no exponential overflows.
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    shares: Shares = exponentials / exponentials.sum(axis=1, keepdims=True)
    return shares


def network(saved: SavedModel, *, averages: bool, source: str) -> Network:
    """Make a saved model answer.

    Args:
        saved: The model.
        averages: Take the moving averages of the parameters, not the parameters.
        source: Where it comes from, for messages.

    Raises:
        InputError: It has no moving averages.
        LabError: It is of an unknown kind, or its parameters do not fit that kind.
    """
    kind = _KINDS.get(saved.model)
    if kind is None:
        known = " or ".join(_KINDS)
        raise LabError(
            f"{source}: holds a model of an unknown kind, {saved.model!r}",
            f"`lab predict` answers for {known}",
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
            what = f"has no parameter {name!r}, which a model {model} needs"
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
                f"{source}: {what}, where a model {model} has float32 of shape [{needed}]",
                "train the model again",
            )
