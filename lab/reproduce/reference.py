"""The bands: what a training in NumPy comes to, from several initializations and orders of batches.

`data/oracle.json` is made by `python -m benchmarks.chapter_oracle`. A run whose seed is among the
oracle's is held against the training with the same initial weights: what is left to chance are the
batches and the order in which the workers come, a seventh of the spread between weights. The
source's run, whose initial weights nobody knows, has the wide band.
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
"""Updates over which the spread of the loss among batches was taken."""

LAST_PLACE: Final = "0.49"
LATE_LOSSES: Final = {"async": 150, "sync": 50}
"""Losses in the mean of late epochs: five an epoch of each worker, or of the round of all three."""

Seeds = Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Band:
    """Where a mean of runs has to lie, and where one run of unknown initial weights does.

    Attributes:
        ours: Of the mean of our runs, with their seeds.
        source: Of one further run.
    """

    ours: Interval
    source: Interval


@dataclass(frozen=True, slots=True)
class Reference:
    """The oracle's trainings of one mode.

    Attributes:
        initials: The seeds of the initial weights: the rows of each table.
        trainings: A table's columns: what was trained with one order of the batches.
    """

    initials: tuple[int, ...]
    trainings: tuple[Any, ...]

    def accuracy(self, updates: Sequence[float], seeds: Seeds, source: float) -> Band | None:
        """The test accuracy after so many updates; None where the oracle was not tested by then.

        Args:
            updates: Of each of our runs, when it was tested.
            seeds: Of each of our runs.
            source: Updates of the source's run.
        """
        first, *_ = self._tested()
        if min(updates) < first:
            return None
        tables = [self._accuracies(each) for each in updates]
        return self._band(tables, seeds, self._accuracies(source))

    def late_loss(self, seeds: Seeds) -> Band:
        """The mean loss of late epochs.

        Its spread follows from that among batches, which is known better than from a few orders:
        with s the deviation of a loss's logarithm, a mean of n has the variance
        mean² · (exp(s²) - 1) / n, as of a lognormal loss.
        """
        table = self._table(lambda training: training["late_loss"])
        batches = self._batches(LAST_PLACE)
        losses = LATE_LOSSES[self.trainings[0]["mode"]]
        variance = float(table.mean()) ** 2 * math.expm1(batches.variance) / losses
        within = Variance(variance, batches.freedom)
        return self._band([table] * len(seeds), seeds, table, within=within)

    def losses(self, places: Sequence[str], seeds: Seeds) -> Band | None:
        """The geometric mean of single batches' losses; None where the oracle lacks a place.

        By logarithms, since a loss is above 0 and its spread grows with it: ours is the geometric
        mean of the runs, too. Of n independent batches each adds its variance / n².

        Args:
            places: Each is a `worker.epoch`.
            seeds: Of each of our runs.
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
        """The spread of a loss's logarithm among batches; the initializations had the same ones."""
        deviations = self._table(lambda training: training["log_loss"][place]["deviation"])
        freedom = deviations.shape[1] * (BATCHES - 1)
        return Variance(float((deviations**2).mean()), freedom)

    def _table(self, of: Callable[[Any], Sequence[float] | Numbers]) -> Numbers:
        """[initializations, orders]."""
        return np.array([of(training) for training in self.trainings], np.float64).T

    def _tested(self) -> list[int]:
        """Updates after which there was a test."""
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
        """Both intervals, from each run's table and the source's.

        Args:
            tables: Of each of our runs.
            seeds: Of each of our runs.
            source: The table of the source's run.
            within: What batches do to a figure; None: as the source's table tells.
            batches: What single batches do to it beside that.
        """
        between, of_orders = variance_components(source)
        within = within or of_orders
        rows, columns = source.shape
        unknown = [
            Variance(between.variance * (1 + 1 / rows), between.freedom),
            Variance(within.variance, within.freedom),
        ]
        known = {seed: row for row, seed in enumerate(self.initials)}
        # Runs with the same seed have the same batches: together they say little more than one.
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
    """The trainings of a mode; None where there are fewer than two of them."""
    chosen = [each for each in trainings if (each["mode"], each["variant"]) == (mode, variant)]
    if len(chosen) < 2:  # noqa: PLR2004
        return None
    return Reference(tuple(chosen[0]["initials"]), tuple(chosen))


@cache
def load_trainings(path: Path = FILE) -> tuple[Any, ...]:
    """What `benchmarks.chapter_oracle` has written."""
    return tuple(json.loads(path.read_text(encoding="utf-8"))["trainings"])
