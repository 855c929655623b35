"""Interleaved pairs, and the median with its interval, the basis of every measurement.

Two things are measured alternately, A B B A A B B A …: a slow drift (heat, a clock rate, a full
disk) then affects both in the same way, since A and B are first equally often. Each pair gives one
ratio. The figure is the median of the ratios.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median and its interval.

    Attributes:
        median: The median of the values.
        low: The lower end of the interval; minus infinity for too few values. The smallest value
            if the values do not repeat one measurement.
        high: The upper end; infinity for too few values. The largest value if the values do not
            repeat one measurement.
        values: The measured values, in the order of their measurement.
    """

    median: float
    low: float
    high: float
    values: tuple[float, ...]


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return the median of values with an interval from their order statistics.

    The interval assumes nothing about the distribution. Each value is below the true median with
    probability 1/2, so the number of values below it is binomial. The interval from the k-th
    smallest to the k-th largest value misses the median with probability 2 P(Binomial(n, 1/2) < k).
    k is the largest number for which this is at most 1 - `confidence` (W. J. Conover, Practical
    Nonparametric Statistics, section 3.2).

    Args:
        values: At least one.
        confidence: The least probability with which the interval covers the true median.

    Raises:
        statistics.StatisticsError: There is no value.
    """
    middle = statistics.median(values)
    ordered = sorted(values)
    rank = _rank(len(ordered), confidence)
    low, high = (ordered[rank - 1], ordered[-rank]) if rank else (-math.inf, math.inf)
    return Estimate(middle, low, high, tuple(values))


def range_of(values: Sequence[float]) -> Estimate:
    """Return the median of values of different things, with the smallest and the largest.

    Raises:
        statistics.StatisticsError: There is no value.
    """
    return Estimate(statistics.median(values), min(values), max(values), tuple(values))


def _rank(count: int, confidence: float) -> int:
    """Return the rank k of the interval's ends, from 1; 0 for too few values."""
    missed, rank = 0.0, 0
    while rank < count // 2:
        missed += 2 * math.comb(count, rank) / 2**count
        if missed > 1 - confidence:
            break
        rank += 1
    return rank


def in_turn(pairs: int) -> list[tuple[int, bool]]:
    """Return the order of measurements, A B B A …: the pair, and whether A is measured."""
    return [(pair, first == (pair % 2 == 0)) for pair in range(pairs) for first in (True, False)]


def interleaved(
    measure_a: Callable[[], T], measure_b: Callable[[], T], pairs: int
) -> list[tuple[T, T]]:
    """Measure A and B alternately.

    Returns:
        The values of A and B of each pair, independent of their order in time.
    """
    found: dict[tuple[int, bool], T] = {}
    for pair, turn_of_a in in_turn(pairs):
        found[pair, turn_of_a] = measure_a() if turn_of_a else measure_b()
    return [(found[pair, True], found[pair, False]) for pair in range(pairs)]


def ratio(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Return the median of A / B over all pairs, with its interval."""
    return estimate([a / b for a, b in pairs])
