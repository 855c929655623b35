"""Intervals, variances and tests; pure functions of numbers.

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
"""The confidence of a band. With fifty claims, 95% would give two or three false alarms."""

LEVEL: Final = 0.001
"""The significance level of a test over many records, for the same reason."""

FEW_LEVEL: Final = 0.05
"""The significance level of a test over runs: three runs do not allow a lower one."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Variance:
    """A variance, and its degrees of freedom.

    Attributes:
        variance: The variance.
        freedom: Its degrees of freedom.
    """

    variance: float
    freedom: float


def prediction_interval(middle: float, *parts: Variance) -> Interval:
    """The interval that contains a further value with probability `CONFIDENCE`.

    Args:
        middle: The expected value.
        parts: Variances of independent sources, which add up. Satterthwaite's formula combines
            their degrees of freedom.
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
    """Split a table's variance into the part between rows, and the part within a row.

    The model is a two-way layout with random effects and one value in each cell. The mean squares
    of the columns and of the residuals estimate the variance of a cell about its row's mean.

    Args:
        table: [rows, columns], 2 or more of each.

    Returns:
        The variance between rows, and within one row.
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
    """The p of Student's t-test that a mean is above 0; one-sided, for at least three values."""
    if np.ptp(values) == 0:
        return 0.0 if values[0] > 0 else 1.0
    return float(stats.ttest_1samp(values, 0, alternative="greater").pvalue)


def binomial_p(some: int, every: int) -> float:
    """The p of the exact binomial test that `some` of `every` is more than half; one-sided."""
    return float(stats.binomtest(some, every, 0.5, alternative="greater").pvalue)


def brown_forsythe_p(some: Sequence[float], others: Sequence[float]) -> float:
    """The p of the Brown-Forsythe test that two samples have the same spread; two-sided."""
    if np.ptp(some) == 0 and np.ptp(others) == 0:
        return 1.0
    return float(stats.levene(some, others, center="median").pvalue)


def chi2_p(tables: Sequence[Sequence[int]]) -> float:
    """The p of Pearson's test that all classes of each table are equally frequent; over all tables.

    Args:
        tables: The count of each class.
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
    """The p of the Mann-Whitney test that neither sample tends to larger values; two-sided."""
    return float(stats.mannwhitneyu(some, others).pvalue)
