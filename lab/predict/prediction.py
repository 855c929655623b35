"""The predictions of a model for images, and its evaluation on a test set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.mnist import CLASSES, Examples, Floats
from lab.predict.network import Network, Probabilities

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """The prediction of a model for one image.

    Attributes:
        image: 784 values in [0, 1].
        predicted: The most probable digit.
        probability: Its probability.
        label: The right digit; None if unknown.
    """

    image: Floats
    predicted: int
    probability: float
    label: int | None = None

    @property
    def wrong(self) -> bool:
        """Whether it is wrong; False without a label."""
        return self.label is not None and self.predicted != self.label

    @property
    def caption(self) -> str:
        """The prediction as short text: `3  98%`, or `✗ 3  61%, is 5`."""
        text = f"{self.predicted}  {percent(self.probability)}"
        return f"✗ {text}, is {self.label}" if self.wrong else text


@dataclass(frozen=True, slots=True)
class DigitScore:
    """The score of one digit.

    Attributes:
        digit: The digit.
        images: The number of images that show it.
        right: The number of right predictions for them.
        mistaken_for: The most frequent wrong prediction, or None.
        mistakes: How often the model predicted that digit.
    """

    digit: int
    images: int
    right: int
    mistaken_for: int | None
    mistakes: int

    @property
    def accuracy(self) -> float | None:
        """The share of right predictions; None if no image shows this digit."""
        return self.right / self.images if self.images else None


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The predictions for all images of a test set.

    Attributes:
        examples: The images and their labels.
        predicted: The most probable digit of each image, [n].
        probabilities: Of each digit, [n, 10].
    """

    examples: Examples
    predicted: Indices
    probabilities: Probabilities

    @property
    def accuracy(self) -> float:
        """The share of images whose largest logit is the right one."""
        return float(self.right.mean())

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Whether each prediction is right, [n]."""
        hits: npt.NDArray[np.bool_] = self.predicted == self.examples.labels
        return hits

    def scores(self) -> list[DigitScore]:
        """Return the score of each digit, from 0 to 9."""
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
        """Return random indices of images; the same seed gives the same indices.

        Args:
            count: The maximum number.
            seed: The random seed.
            wrong: Only among those that were not recognized.

        Returns:
            Their places in the test set, rising.
        """
        among = np.flatnonzero(~self.right) if wrong else np.arange(len(self.examples))
        random = np.random.default_rng(seed)
        drawn = random.choice(among, size=min(count, len(among)), replace=False)
        return sorted(int(index) for index in drawn)


def evaluate(network: Network, examples: Examples) -> Evaluation:
    """Predict every image of a test set.

    Raises:
        LabError: A prediction is NaN or infinite.
    """
    probabilities = network.probabilities(examples.images)
    # From the logits, as in training: two different logits may have the same probability.
    predicted = network.logits(examples.images).argmax(axis=1)
    return Evaluation(examples, predicted, probabilities)


def percent(share: float, decimals: int = 0) -> str:
    """Return a probability in percent; only 1 is `100%` and only 0 is `0%`."""
    step = 10.0 ** -(decimals + 2)
    if 1 - step / 2 <= share < 1:
        return f">{1 - step:.{decimals}%}"
    return f"<{step:.{decimals}%}" if 0 < share < step / 2 else f"{share:.{decimals}%}"


def most_probable(probabilities: Probabilities, count: int) -> list[tuple[int, float]]:
    """Return the digits with the largest probabilities, the largest first."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    return [(int(digit), float(probabilities[digit])) for digit in order]
