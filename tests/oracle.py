"""The oracle: the same models, data and hyperparameters in NumPy alone, one update after another.

It shares nothing with the programs but the data, the order of the batches, and the way in which
initial parameters are drawn: gradients, penalties and the decay of the rate are written anew.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.protocol.mnist import Examples, Floats, Ints, Mnist

Parameters = dict[str, Floats]
Batch = tuple[Floats, Ints]

PIXELS, HIDDEN, CLASSES = 784, 500, 10
L2 = np.float32(1e-4)


@dataclass(frozen=True, slots=True)
class Step:
    """One update: the loss before it, and the parameters after it."""

    loss: float
    parameters: Parameters


def initial_parameters(model: str, seed: int) -> Parameters:
    random = np.random.default_rng(seed)
    if model == "softmax":
        weights = random.standard_normal((PIXELS, CLASSES), np.float32)
        return {"weights": weights, "biases": random.standard_normal(CLASSES, np.float32)}

    def truncated(rows: int, columns: int) -> Floats:
        values = random.standard_normal((rows, columns), np.float32)
        while (outside := np.abs(values) > 2).any():
            values[outside] = random.standard_normal(int(outside.sum()), np.float32)
        return np.float32(0.1) * values

    weights1, weights2 = truncated(PIXELS, HIDDEN), truncated(HIDDEN, CLASSES)
    zeros1, zeros2 = np.zeros(HIDDEN, np.float32), np.zeros(CLASSES, np.float32)
    return {"weights1": weights1, "biases1": zeros1, "weights2": weights2, "biases2": zeros2}


def logits(parameters: Parameters, images: Floats) -> Floats:
    """Images [n, 784] to logits [n, 10]."""
    if "weights" in parameters:
        return images @ parameters["weights"] + parameters["biases"]
    hidden: Floats = np.maximum(images @ parameters["weights1"] + parameters["biases1"], 0)
    return hidden @ parameters["weights2"] + parameters["biases2"]


def accuracy(parameters: Parameters, examples: Examples) -> float:
    return float(np.mean(logits(parameters, examples.images).argmax(1) == examples.labels))


def train(
    parameters: Parameters,
    batches: Iterable[Batch],
    *,
    rate: float,
    decay: float = 1.0,
    kink: float = 0.0,
) -> Iterator[Step]:
    """Descend batch by batch; the rate decays by `decay` in 600 updates, smoothly."""
    parameters = {name: value.copy() for name, value in parameters.items()}
    for update, (images, labels) in enumerate(batches):
        loss, gradients = loss_and_gradients(parameters, images, labels, kink)
        now = np.float32(rate * decay ** (update / 600))
        for name, gradient in gradients.items():
            parameters[name] -= now * gradient
        yield Step(loss, parameters)


def loss_and_gradients(
    parameters: Parameters, images: Floats, labels: Ints, kink: float = 0.0
) -> tuple[float, Parameters]:
    """The loss of a batch, and its gradients by backpropagation.

    Args:
        parameters: Of either model.
        images: Shape [n, 784].
        labels: Shape [n].
        kink: A hidden unit passes an image's gradient where its sum is above this; ReLU's is 0.
    """
    rows = np.arange(len(labels))
    out = logits(parameters, images)
    out = out - out.max(1, keepdims=True)
    log_share = out - np.log(np.exp(out).sum(1, keepdims=True))
    loss = float(-log_share[rows, labels].mean())
    error = np.exp(log_share)
    error[rows, labels] -= 1
    error /= np.float32(len(labels))
    if "weights" in parameters:
        return loss, {"weights": images.T @ error, "biases": error.sum(0)}
    sums = images @ parameters["weights1"] + parameters["biases1"]
    hidden: Floats = np.maximum(sums, 0)
    back = (error @ parameters["weights2"].T) * (sums > kink)
    weights1, weights2 = parameters["weights1"], parameters["weights2"]
    loss += float(L2 * ((weights1**2).sum() + (weights2**2).sum()) / 2)
    return loss, {
        "weights1": images.T @ back + L2 * weights1,
        "biases1": back.sum(0),
        "weights2": hidden.T @ error + L2 * weights2,
        "biases2": error.sum(0),
    }


ROUNDING = 4e-6
"""Sums of 784 float32 products in another order differ by about 1e-6.

Where a hidden unit's sum is as close to 0 as that, one order lets an image's gradient pass and
another does not, and both are right.
"""


def apart(one: Parameters, other: Parameters) -> Parameters:
    """How far two trainings are apart: the largest difference in all that belongs to a hidden unit.

    Returns:
        By parameter, of a shape that broadcasts to the parameter's.
    """

    def largest(difference: Floats) -> Floats:
        others = tuple(axis for axis, size in enumerate(difference.shape) if size != HIDDEN)
        return np.abs(difference).max(axis=others, keepdims=True)

    return {name: largest(value - other[name]) for name, value in one.items()}


def worker_batches(
    train_set: Examples, seed: int, task_index: int, batch_size: int = 100
) -> Iterator[Batch]:
    """The batches of one worker, in its own order."""
    return train_set.batches(batch_size, [seed, 1 + task_index])


def joined(streams: Sequence[Iterator[Batch]]) -> Iterator[Batch]:
    """One large batch of each worker's next: its gradient is the mean of theirs."""
    for parts in zip(*streams, strict=True):
        yield np.concatenate([part[0] for part in parts]), np.concatenate([p[1] for p in parts])


def in_turn(streams: Sequence[Iterator[Batch]]) -> Iterator[Batch]:
    """The workers' batches one after the other: the order of equally fast workers."""
    for parts in zip(*streams, strict=True):
        yield from parts


@dataclass(frozen=True, slots=True)
class Band:
    """The interval of a further run with the given confidence, if it is one of the sample."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, float) and self.low <= value <= self.high


# Student's t for a two-sided 99.9% interval, by degrees of freedom.
_T_999 = {5: 6.869, 7: 5.408, 9: 4.781, 11: 4.437, 14: 4.140}


def prediction_band(sample: Sequence[float]) -> Band:
    """The 99.9% prediction interval for one more draw: mean ± t·s·√(1 + 1/n).

    99.9% because a test that is wrong once in twenty runs would be noise.
    """
    count = len(sample)
    values: npt.NDArray[np.float64] = np.asarray(sample, np.float64)
    half = _T_999[count - 1] * float(values.std(ddof=1)) * math.sqrt(1 + 1 / count)
    return Band(float(values.mean()) - half, float(values.mean()) + half)


def asynchronous_band(
    mnist: Mnist, updates: int, seed: int, *, workers: int = 3, sample: int = 6
) -> Band:
    """The interval of softmax's accuracy after these updates of several workers, at a rate of 0.01.

    The weights begin as those of `seed` do, so that what is left to chance are the batches, and
    the order in which the workers come. Nothing but the number of updates moves it far: the whole
    band of 2,000 is as wide as the gain of some seventy updates.
    """

    def of_one(order: int) -> float:
        streams = [worker_batches(mnist.train, 1000 + order, index) for index in range(workers)]
        parameters = initial_parameters("softmax", seed)
        for step in itertools.islice(train(parameters, in_turn(streams), rate=0.01), updates):
            last = step.parameters
        return accuracy(last, mnist.test)

    return prediction_band([of_one(order) for order in range(sample)])
