"""Means, intervals and tests for values with one number per run.

Confidence intervals of means: Student, Biometrika 6 (1908). Prediction intervals: Hahn and Meeker,
Statistical Intervals (1991). The sign test: Arbuthnott, Philosophical Transactions 27 (1710).
Two one-sided tests: Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987).
Degrees of freedom of a sum of variances: Satterthwaite, Biometrics Bulletin 2 (1946).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import special  # `scipy.stats` takes much longer to import

Floats = npt.NDArray[np.float64]

CONFIDENCE: Final = 0.95

SOURCE_LEVEL: Final = 0.05
"""The probability of a wrong verdict on any counted claim of a source, at most."""

EQUIVALENCE_LEVEL: Final = 0.05
"""The level of each of the two one-sided tests of an equivalence."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over runs.

    Attributes:
        value: The mean.
        half: Half of its 95% interval (Student's t); None for a single run.
        runs: The number of runs.
    """

    value: float
    half: float | None
    runs: int

    def text(self, form: Callable[[float], str]) -> str:
        """Return `0.8523 ± 0.0041`, each number by `form`."""
        return form(self.value) + ("" if self.half is None else f" ± {form(self.half)}")


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


def mean_of(values: Iterable[float | None]) -> Mean | None:
    """The mean of the values that are known and finite; None if there are none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    middle, half = map(float, mean_with_ci(known))
    return Mean(middle, None if math.isnan(half) else half, len(known))


def mean_with_ci(values: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Compute the mean over runs, and half the width of its 95% confidence interval.

    Args:
        values: One value a run, shape [runs], or several, shape [runs, places].

    Returns:
        Both, shape [] or [places]; with a single run the interval is NaN.
    """
    table = np.asarray(values, np.float64)
    runs = len(table)
    mean = np.asarray(table.mean(axis=0))
    if runs < 2:  # noqa: PLR2004
        return mean, np.full(mean.shape, np.nan)
    error = table.std(axis=0, ddof=1) / math.sqrt(runs)
    return mean, np.asarray(_t((1 + CONFIDENCE) / 2, runs - 1) * error)


def prediction_interval(values: Sequence[float], level: float) -> Interval:
    """The interval that contains the value of one more run with probability 1 - `level`.

    Mean ± t · s · √(1 + 1/n), for normally distributed values; s is their standard deviation.

    Args:
        values: A value of each run, at least two.
        level: The probability that the next value is outside.
    """
    n = len(values)
    half = _t(1 - level / 2, n - 1) * float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / n)
    return _around(float(np.mean(values)), half)


def sign_test_p(successes: int, n: int) -> float:
    """The p of `successes` or more of n runs, if a run succeeds with probability 1/2 at most."""
    return float(special.bdtrc(successes - 1, n, 0.5))


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
        return _around(middle, 0.0)
    freedom = total**2 / (runs**2 / (n - 1) + order**2 / (orders - 1))
    return _around(middle, _t(1 - EQUIVALENCE_LEVEL, freedom) * math.sqrt(total))


def _t(probability: float, freedom: float) -> float:
    """The quantile of Student's t."""
    return float(special.stdtrit(freedom, probability))


def _around(middle: float, half: float) -> Interval:
    return Interval(middle - half, middle + half)
