"""One image and what the model says of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lab.predict.network import Shares
from lab.task.data import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
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
        said = f"{self.predicted}  {percent(self.probability)}"
        return f"✗ {said}, is {self.label}" if self.wrong else said


def percent(share: float) -> str:
    """A probability in whole hundredths; what is not certain is not called 100%."""
    if 0.995 <= share < 1:  # noqa: PLR2004
        return ">99%"
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"  # noqa: PLR2004


def most_probable(probabilities: Shares, count: int) -> list[tuple[int, float]]:
    """The digits with the largest probabilities, the largest first."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    return [(int(digit), float(probabilities[digit])) for digit in order]
