"""What a model says of images, and of a test set: how many are right, and which to look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.predict.network import Network, Shares
from lab.task.sdk.data import CLASSES, Examples, Floats

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """One image and what the model says of it.

    Attributes:
        image: 784 values in [0, 1].
        predicted: The most probable digit.
        probability: Its probability.
        label: The digit that it is; None where nobody said so.
    """

    image: Floats
    predicted: int
    probability: float
    label: int | None = None

    @property
    def wrong(self) -> bool:
        """Whether it is known to be wrong."""
        return self.label is not None and self.predicted != self.label

    @property
    def caption(self) -> str:
        """The answer in a few signs: `3  98%`, or `✗ 3  61%, is 5`."""
        printed = f"{self.predicted}  {percent(self.probability)}"
        return f"✗ {printed}, is {self.label}" if self.wrong else printed


@dataclass(frozen=True, slots=True)
class DigitScore:
    """How one digit was recognized.

    Attributes:
        digit: Which one.
        images: How many images show it.
        right: How many of them were recognized.
        mistaken_for: The digit that it was taken for most often, or None.
        mistakes: How often it was taken for that one.
    """

    digit: int
    images: int
    right: int
    mistaken_for: int | None
    mistakes: int

    @property
    def accuracy(self) -> float | None:
        """The share that was recognized; None where no image shows this digit."""
        return self.right / self.images if self.images else None


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The answers to all images of a test set.

    Attributes:
        examples: The images and what they show.
        predicted: The most probable digit of each image, [n].
        probabilities: Of each digit, [n, 10].
    """

    examples: Examples
    predicted: Indices
    probabilities: Shares

    @property
    def accuracy(self) -> float:
        """The share of images whose largest logit is the right one."""
        return float(self.right.mean())

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Whether each answer is right, [n]."""
        hits: npt.NDArray[np.bool_] = self.predicted == self.examples.labels
        return hits

    def scores(self) -> list[DigitScore]:
        """One for each digit, from 0 to 9."""
        taken_for = np.zeros((CLASSES, CLASSES), np.int64)
        np.add.at(taken_for, (self.examples.labels, self.predicted), 1)
        images, right = taken_for.sum(axis=1).tolist(), taken_for.diagonal().tolist()
        np.fill_diagonal(taken_for, 0)
        most, mistakes = taken_for.argmax(axis=1).tolist(), taken_for.max(axis=1).tolist()
        return [
            DigitScore(digit, images[digit], right[digit], most[digit] if times else None, times)
            for digit, times in enumerate(mistakes)
        ]

    def sample(self, count: int, seed: int, *, wrong: bool) -> list[int]:
        """Draw images to look at; the same seed draws the same ones.

        Args:
            count: How many, at most.
            seed: What determines them.
            wrong: Only among those that were not recognized.

        Returns:
            Their places in the test set, rising.
        """
        among = np.flatnonzero(~self.right) if wrong else np.arange(len(self.examples))
        random = np.random.default_rng(seed)
        drawn = random.choice(among, size=min(count, len(among)), replace=False)
        return sorted(int(index) for index in drawn)


def evaluate(network: Network, examples: Examples) -> Evaluation:
    """Ask a model about every image.

    Raises:
        LabError: Its answers are no numbers.
    """
    probabilities = network.probabilities(examples.images)
    # Of the logits, as in training: two that differ may have the same probability.
    predicted = network.logits(examples.images).argmax(axis=1)
    return Evaluation(examples, predicted, probabilities)


def percent(share: float, decimals: int = 0) -> str:
    """A probability with so many decimals of a percent; what is not certain is not called 100%."""
    step = 10.0 ** -(decimals + 2)
    if 1 - step / 2 <= share < 1:
        return f">{1 - step:.{decimals}%}"
    return f"<{step:.{decimals}%}" if 0 < share < step / 2 else f"{share:.{decimals}%}"


def most_probable(probabilities: Shares, count: int) -> list[tuple[int, float]]:
    """The digits with the largest probabilities, the largest first."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    return [(int(digit), float(probabilities[digit])) for digit in order]
