"""Statistics of runs, and tests of them; pure functions of numbers.

Student's t: Student, The probable error of a mean, Biometrika 6 (1908). Prediction intervals: Hahn
and Meeker, Statistical Intervals (1991). Degrees of freedom of a sum of variances: Satterthwaite,
Biometrics Bulletin 2 (1946). Equality of spreads: Brown and Forsythe, JASA 69 (1974), which is
Levene's test about medians. Goodness of fit: Pearson, Philosophical Magazine 50 (1900). Signed
ranks: Wilcoxon, Biometrics Bulletin 1 (1945). Two samples by ranks: Mann and Whitney, Annals of
Mathematical Statistics 18 (1947).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from lab.statistics import mean_with_ci

Numbers = NDArray[np.float64]

CONFIDENCE: Final = 0.999
"""Of a band. Beside fifty claims, one wrong in twenty would be noise."""

LEVEL: Final = 0.001
"""At which a test over many records decides, for the same reason."""

FEW_LEVEL: Final = 0.05
"""At which a test over runs decides: three of them cannot say more."""


@dataclass(frozen=True, slots=True)
class Interval:
    """From low to high, both included."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Variance:
    """A variance, and how well it is known.

    Attributes:
        variance: The variance.
        freedom: Its degrees of freedom.
    """

    variance: float
    freedom: float


def prediction_interval(middle: float, *parts: Variance) -> Interval:
    """The interval in which a further value lies with `CONFIDENCE`.

    Args:
        middle: What is expected.
        parts: Independent sources of spread, which add up; their degrees of freedom are joined as
            Satterthwaite does.
    """
    total = sum(part.variance for part in parts)
    if total <= 0:
        return Interval(middle, middle)
    freedom = total**2 / sum(part.variance**2 / part.freedom for part in parts)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(total)
    return Interval(middle - half, middle + half)


def mean_interval(values: Sequence[float]) -> Interval | None:
    """The 95% interval of the mean, by Student's t; None for a single value."""
    if len(values) < 2:  # noqa: PLR2004
        return None
    middle, half = map(float, mean_with_ci(values))
    return Interval(middle - half, middle + half)


def variance_components(table: Numbers) -> tuple[Variance, Variance]:
    """Split a table's spread: what rows do to a value, and what columns and chance do.

    The model of a two-way layout with random effects and one value in each cell: the mean squares
    of columns and of the rest tell the variance of a cell about its row's mean in the long run.

    Args:
        table: [rows, columns], 2 or more of each.

    Returns:
        Between rows, and within one row.
    """
    rows, columns = table.shape
    by_row, by_column = table.mean(1), table.mean(0)
    rest = table - by_row[:, None] - by_column[None, :] + table.mean()
    of_columns = rows * float(np.var(by_column, ddof=1))
    of_rest = float((rest**2).sum()) / ((rows - 1) * (columns - 1))
    within = (of_columns + (rows - 1) * of_rest) / rows
    parts = of_columns**2 / (columns - 1) + ((rows - 1) * of_rest) ** 2 / (
        (rows - 1) * (columns - 1)
    )
    freedom = (of_columns + (rows - 1) * of_rest) ** 2 / parts if parts else columns - 1
    return Variance(float(np.var(by_row, ddof=1)), rows - 1), Variance(within, freedom)


def ttest_p(values: Sequence[float]) -> float:
    """The p of Student's t-test that a mean is above 0; one-sided, for three values and more."""
    if np.ptp(values) == 0:
        return 0.0 if values[0] > 0 else 1.0
    return float(stats.ttest_1samp(values, 0, alternative="greater").pvalue)


def binomial_p(some: int, every: int) -> float:
    """The p of the exact binomial test that more than half of them are so; one-sided."""
    return float(stats.binomtest(some, every, 0.5, alternative="greater").pvalue)


def brown_forsythe_p(some: Sequence[float], others: Sequence[float]) -> float:
    """The p of Brown's and Forsythe's test that two samples have the same spread; two-sided."""
    if np.ptp(some) == 0 and np.ptp(others) == 0:
        return 1.0
    return float(stats.levene(some, others, center="median").pvalue)


def chi2_p(tables: Sequence[Sequence[int]]) -> float:
    """The p of Pearson's test that in each table all classes are equally frequent, taken together.

    Args:
        tables: How often each class was seen.
    """
    total, freedom = 0.0, 0
    for counts in tables:
        if sum(counts):
            total += float(stats.chisquare(counts).statistic)
            freedom += len(counts) - 1
    return float(stats.chi2.sf(total, freedom)) if freedom else 1.0


def wilcoxon_p(some: Sequence[float], others: Sequence[float], factor: float = 1.0) -> float:
    """The p of Wilcoxon's test that pairs of values have a ratio above `factor`; one-sided."""
    logs = np.log(np.asarray(some) / np.asarray(others)) - math.log(factor)
    if not logs.any():
        return 1.0
    return float(stats.wilcoxon(logs, alternative="greater").pvalue)


def mannwhitney_p(some: Sequence[float], others: Sequence[float]) -> float:
    """The p of Mann's and Whitney's test that neither sample tends to larger values; two-sided."""
    return float(stats.mannwhitneyu(some, others).pvalue)
