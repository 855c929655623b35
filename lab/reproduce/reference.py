"""The NumPy reference: intervals from trainings with several initial weights and batch orders.

`python -m benchmarks.chapter_oracle` writes `data/oracle.json`. A run with a seed of the reference
is compared with the training from the same initial weights. Then only the batches and the order of
the workers are random: a seventh of the spread between initial weights. The initial weights of the
source's run are not known, so its interval is wide.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from lab.reproduce.claims import DATA
from lab.reproduce.statistics import (
    Interval,
    Numbers,
    Variance,
    prediction_interval,
    variance_components,
)

FILE: Final = DATA / "oracle.json"
BATCHES: Final = 110
"""The number of updates from which the spread of the loss between batches was computed."""

LAST_PLACE: Final = "0.49"
LATE_LOSSES: Final = {"async": 150, "sync": 50}
"""Losses in the mean of late epochs: five an epoch of each worker, or of all three together."""

Seeds = Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Band:
    """The intervals of a value.

    Attributes:
        ours: The interval for the mean of our runs, with their seeds.
        source: The interval for one run with unknown initial weights.
    """

    ours: Interval
    source: Interval


@dataclass(frozen=True, slots=True)
class Reference:
    """The NumPy trainings of one mode.

    Attributes:
        initials: The seeds of the initial weights: the rows of each table.
        trainings: The results for each order of the batches: the columns of each table.
    """

    initials: tuple[int, ...]
    trainings: tuple[Any, ...]

    def accuracy(self, updates: Sequence[float], seeds: Seeds, source: float) -> Band | None:
        """The test accuracy after `updates`; None before the first test of the reference.

        Args:
            updates: The updates before the test of each of our runs.
            seeds: The seed of each of our runs.
            source: The updates of the source's run.
        """
        first, *_ = self._tested()
        if min(updates) < first:
            return None
        tables = [self._accuracies(each) for each in updates]
        return self._band(tables, seeds, self._accuracies(source))

    def late_loss(self, seeds: Seeds) -> Band:
        """The mean loss of late epochs.

        Its spread is computed from the spread between batches, which is known better than the
        spread between a few orders. With s the standard deviation of the logarithm of a log-normal
        loss, the mean of n losses has the variance mean² · (exp(s²) - 1) / n.
        """
        table = self._table(lambda training: training["late_loss"])
        batches = self._batches(LAST_PLACE)
        losses = LATE_LOSSES[self.trainings[0]["mode"]]
        variance = float(table.mean()) ** 2 * math.expm1(batches.variance) / losses
        within = Variance(variance, batches.freedom)
        return self._band([table] * len(seeds), seeds, table, within=within)

    def losses(self, places: Sequence[str], seeds: Seeds) -> Band | None:
        """The geometric mean of single batches' losses; None if the reference lacks a place.

        Logarithms are used because a loss is positive and its spread grows with it. The value of
        our runs is also their geometric mean. Each of n independent batches adds its variance / n².

        Args:
            places: Names of the form `worker.epoch`.
            seeds: The seed of each of our runs.
        """
        if any(place not in each["log_loss"] for each in self.trainings for place in places):
            return None
        table = self._table(
            lambda training: np.mean([training["log_loss"][place]["mean"] for place in places], 0)
        )
        known = [self._batches(place) for place in places]
        batches = [Variance(each.variance / len(places) ** 2, each.freedom) for each in known]
        band = self._band([table] * len(seeds), seeds, table, batches=batches)
        return Band(_exponential(band.ours), _exponential(band.source))

    def _batches(self, place: str) -> Variance:
        """The variance of a loss's logarithm between batches; all initial weights had the same."""
        deviations = self._table(lambda training: training["log_loss"][place]["deviation"])
        freedom = deviations.shape[1] * (BATCHES - 1)
        return Variance(float((deviations**2).mean()), freedom)

    def _table(self, of: Callable[[Any], Sequence[float] | Numbers]) -> Numbers:
        """A table [initial weights, orders] of a value of each training."""
        return np.array([of(training) for training in self.trainings], np.float64).T

    def _tested(self) -> list[int]:
        """The numbers of updates after which the reference was tested."""
        return sorted(int(step) for step in self.trainings[0]["accuracy"])

    def _accuracies(self, updates: float) -> Numbers:
        known = self._tested()
        return np.array(
            [
                [
                    np.interp(updates, known, [each["accuracy"][f"{step}"][row] for step in known])
                    for each in self.trainings
                ]
                for row in range(len(self.initials))
            ]
        )

    def _band(
        self,
        tables: Sequence[Numbers],
        seeds: Seeds,
        source: Numbers,
        *,
        within: Variance | None = None,
        batches: Sequence[Variance] = (),
    ) -> Band:
        """Both intervals, from the tables of our runs and of the source's run.

        Args:
            tables: The table of each of our runs.
            seeds: The seed of each of our runs.
            source: The table of the source's run.
            within: The variance due to batch orders; None: computed from the source's table.
            batches: Further variances due to single batches.
        """
        between, of_orders = variance_components(source)
        within = within or of_orders
        rows, columns = source.shape
        unknown = [
            Variance(between.variance * (1 + 1 / rows), between.freedom),
            Variance(within.variance, within.freedom),
        ]
        known = {seed: row for row, seed in enumerate(self.initials)}
        # Runs with the same seed have the same batches, so they count as one.
        count = max(len({seed for seed in seeds if seed is not None}) + seeds.count(None), 1)
        if all(seed in known for seed in seeds):
            middle = np.mean(
                [table[known[seed or 0]].mean() for table, seed in zip(tables, seeds, strict=True)]
            )
            ours = [Variance(within.variance * (1 / count + 1 / columns), within.freedom)]
        else:
            middle = np.mean([table.mean() for table in tables])
            ours = [
                Variance(between.variance * (1 / count + 1 / rows), between.freedom),
                Variance(within.variance / count, within.freedom),
            ]
        shared = [Variance(each.variance / count, each.freedom) for each in batches]
        return Band(
            prediction_interval(float(middle), *ours, *shared),
            prediction_interval(float(source.mean()), *unknown, *batches),
        )


def _exponential(interval: Interval) -> Interval:
    return Interval(math.exp(interval.low), math.exp(interval.high))


def of_mode(trainings: Sequence[Any], mode: str, variant: str = "") -> Reference | None:
    """The trainings of a mode; None if there are fewer than two."""
    chosen = [each for each in trainings if (each["mode"], each["variant"]) == (mode, variant)]
    if len(chosen) < 2:  # noqa: PLR2004
        return None
    return Reference(tuple(chosen[0]["initials"]), tuple(chosen))


@cache
def load_trainings(path: Path = FILE) -> tuple[Any, ...]:
    """Load the trainings that `benchmarks.chapter_oracle` wrote."""
    return tuple(json.loads(path.read_text(encoding="utf-8"))["trainings"])
