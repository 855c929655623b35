"""A model's answers to the test set: how many are right, and which images to look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.predict.network import Network, Shares
from lab.task.data import CLASSES, Examples

Indices = npt.NDArray[np.intp]


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
        found = []
        for digit, row in enumerate(taken_for):
            others = row.copy()
            others[digit] = 0
            most = int(others.argmax())
            mistakes = int(others[most])
            mistaken_for = most if mistakes else None
            found.append(DigitScore(digit, int(row.sum()), int(row[digit]), mistaken_for, mistakes))
        return found

    def some(self, count: int, seed: int, *, wrong: bool) -> list[int]:
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
