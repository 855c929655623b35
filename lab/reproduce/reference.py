"""The NumPy reference: final accuracies of the chapter's trainings, without a fitted parameter.

`python -m benchmarks.chapter_oracle` writes `data/reference.json`. A run is compared with the
trainings from the same initial weights; then only the batches and the order of the workers are
random. Both are a seventh of the spread between initial weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from lab.reproduce.claims import DATA

FILE: Final = DATA / "reference.json"


@dataclass(frozen=True, slots=True)
class Reference:
    """The final accuracies of one mode.

    Attributes:
        by_seed: For each seed of the initial weights, the mean over the batch orders.
        deviation: The standard deviation between orders, of the mean over all seeds.
        orders: The number of orders.
    """

    by_seed: dict[int, float]
    deviation: float
    orders: int


def trainings(mode: str, variant: str = "") -> list[dict[str, Any]]:
    """The trainings of a mode and a variant, one for each batch order."""
    return [t for t in _all_trainings() if (t["mode"], t["variant"]) == (mode, variant)]


def reference(mode: str) -> Reference:
    """The reference of a mode, `async` or `sync`."""
    of_mode = trainings(mode)
    table = np.array([each["accuracy"] for each in of_mode])
    by_seed = dict(zip(of_mode[0]["seeds"], table.mean(0).tolist(), strict=True))
    return Reference(by_seed, float(np.std(table.mean(1), ddof=1)), len(of_mode))


@cache
def _all_trainings() -> list[dict[str, Any]]:
    trainings: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["trainings"]
    return trainings
