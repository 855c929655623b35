"""Intervals and tests of values of which each is from one run; pure functions of numbers.

Prediction intervals: Hahn and Meeker, Statistical Intervals (1991). The sign test: Arbuthnott,
Philosophical Transactions 27 (1710). Stepwise correction: Holm, Scandinavian Journal of Statistics
6 (1979). Two one-sided tests: Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15
(1987). Degrees of freedom of a sum of variances: Satterthwaite, Biometrics Bulletin 2 (1946).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

SOURCE_LEVEL: Final = 0.05
"""The probability of a wrong verdict on any counted claim of a source, at most."""

EQUIVALENCE_LEVEL: Final = 0.05
"""The level of each of the two one-sided tests of an equivalence."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


def prediction_interval(values: Sequence[float], level: float) -> Interval:
    """The interval that contains the value of one more run with probability 1 - `level`.

    Mean ± t · s · √(1 + 1/n), for normally distributed values; s is their standard deviation.

    Args:
        values: A value of each run, at least two.
        level: The probability that the next value is outside.
    """
    n = len(values)
    t = float(stats.t.ppf(1 - level / 2, n - 1))
    half = t * float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / n)
    middle = float(np.mean(values))
    return Interval(middle - half, middle + half)


def sign_test_p(successes: int, n: int) -> float:
    """The p of `successes` or more of n runs, if a run succeeds with probability 1/2 at most."""
    return float(stats.binom.sf(successes - 1, n, 0.5))


def holm(ps: Sequence[float], level: float) -> list[bool]:
    """Whether each hypothesis is rejected; the probability of any wrong one is at most `level`."""
    rejected = [False] * len(ps)
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        if ps[index] > level / (len(ps) - rank):
            break
        rejected[index] = True
    return rejected


def difference_interval(
    differences: Sequence[float], reference_deviation: float, orders: int
) -> Interval:
    """The interval of the mean difference from the reference, for two one-sided tests.

    Runs and reference differ by chance: the runs' spread counts once for each run, the spread
    between the batch orders of the reference once for each order.

    Args:
        differences: Ours minus the reference for the same initial weights; of each run.
        reference_deviation: The standard deviation between the reference's orders.
        orders: The number of orders.
    """
    n = len(differences)
    runs, order = float(np.var(differences, ddof=1)) / n, reference_deviation**2 / orders
    middle, total = float(np.mean(differences)), runs + order
    if total == 0:
        return Interval(middle, middle)
    freedom = total**2 / (runs**2 / (n - 1) + order**2 / (orders - 1))
    half = float(stats.t.ppf(1 - EQUIVALENCE_LEVEL, freedom)) * math.sqrt(total)
    return Interval(middle - half, middle + half)
