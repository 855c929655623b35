"""Interleaved pairs, and the median with its interval: what every measurement is made of.

Two things are compared by measuring them in turn, A B B A A B B A …: whatever drifts slowly (heat,
a clock rate, a full disk) falls on both alike, and what is left of it stands once before A and once
before B. Each pair gives one ratio; the figure is the median of the ratios.
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
    """A median and where it lies.

    Attributes:
        median: Of the values.
        low: The lower end of the interval; minus infinity where there are too few values. Of
            values that do not repeat one thing: the smallest.
        high: The upper end; infinity where there are too few values. Likewise: the largest.
        values: What was measured, in order of time.
    """

    median: float
    low: float
    high: float
    values: tuple[float, ...]


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The median of values with an interval from their order statistics.

    The interval assumes nothing about how the values are distributed: each lies below the true
    median with probability 1/2, so that how many do is binomial, and the interval from the k-th
    smallest to the k-th largest misses the median with probability 2 P(Binomial(n, 1/2) < k). The
    largest k is taken that keeps this within 1 - `confidence` (W. J. Conover, Practical
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
    """The median of values that are each of another thing, between the smallest and the largest.

    Raises:
        statistics.StatisticsError: There is no value.
    """
    return Estimate(statistics.median(values), min(values), max(values), tuple(values))


def _rank(count: int, confidence: float) -> int:
    """How far from either end the interval's ends stand, from 1; 0: too few values for any."""
    missed, rank = 0.0, 0
    while rank < count // 2:
        missed += 2 * math.comb(count, rank) / 2**count
        if missed > 1 - confidence:
            break
        rank += 1
    return rank


def in_turn(pairs: int) -> list[tuple[int, bool]]:
    """The order of measurements, A B B A …: the pair, and whether it is A's turn."""
    return [(pair, first == (pair % 2 == 0)) for pair in range(pairs) for first in (True, False)]


def interleaved(
    measure_a: Callable[[], T], measure_b: Callable[[], T], pairs: int
) -> list[tuple[T, T]]:
    """Measure both in turn.

    Returns:
        A's and B's value of each pair, whichever of them was measured first.
    """
    found: dict[tuple[int, bool], T] = {}
    for pair, turn_of_a in in_turn(pairs):
        found[pair, turn_of_a] = measure_a() if turn_of_a else measure_b()
    return [(found[pair, True], found[pair, False]) for pair in range(pairs)]


def ratio(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """The median of A / B over all pairs, with its interval."""
    return estimate([a / b for a, b in pairs])
