"""The statistics of a sweep: a mean with its interval for each setting, and trends."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from lab.analysis.grid import RunResult, combinations, metric_names
from lab.statistics import Mean, mean_of

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Setting:
    """All runs with the same values.

    Attributes:
        values: The value of each parameter.
        runs: The number of runs that succeeded.
        of: The number of runs.
        diverged: The number of succeeded runs with a NaN or infinite loss or result.
        means: The mean of each metric over the succeeded runs.
    """

    values: Mapping[str, str]
    runs: int
    of: int
    diverged: int
    means: Mapping[str, Mean]


@dataclass(frozen=True, slots=True)
class Trend:
    """Whether a metric rises or falls with a parameter, with all other parameters fixed.

    Attributes:
        along: The parameter.
        held: The values of the other parameters.
        figure: The metric.
        rho: The mean over the repeats of Spearman's rank correlation: -1 to 1.
        p: The two-sided p-value of the trend.
        least_p: The smallest p-value that this number of repeats and values allows.
        repeats: The number of repeats.
    """

    along: str
    held: Mapping[str, str]
    figure: str
    rho: float
    p: float
    least_p: float
    repeats: int


def means(results: Sequence[RunResult]) -> list[Setting]:
    """Return the statistics of each setting."""
    found = []
    for values in combinations([each.point for each in results]):
        same = [each for each in results if dict(each.point.values) == values]
        succeeded = [each for each in same if each.succeeded]
        good = [each.metrics() for each in succeeded]
        over_runs = {
            name: mean_of(metrics.get(name) for metrics in good) for name in metric_names(results)
        }
        found.append(
            Setting(
                values,
                len(good),
                len(same),
                sum(each.diverged for each in succeeded),
                {name: mean for name, mean in over_runs.items() if mean is not None},
            )
        )
    return found


def trends(results: Sequence[RunResult], along: str) -> Iterator[Trend]:
    """Yield the trends of all metrics along a parameter whose values are numbers.

    It compares ranks, because a trend may be nonlinear, and only within a repeat, because the runs
    of a repeat share a seed. Three values or more: E. B. Page's test for ordered alternatives
    (1963); two values: F. Wilcoxon's signed-rank test (1945). A repeat with a missing run does not
    count.
    """
    try:
        values = sorted({each.point.values[along] for each in results}, key=float)
    except ValueError:  # texts have no order
        return
    good = [each for each in results if each.succeeded]
    others = [
        {name: text for name, text in each.point.values.items() if name != along} for each in good
    ]
    for held in [each for index, each in enumerate(others) if each not in others[:index]]:
        group = [each for each, other in zip(good, others, strict=True) if other == held]
        for name in metric_names(group):
            cells = {
                (each.point.repeat, each.point.values[along]): each.metrics().get(name)
                for each in group
            }
            rows = [
                [cells.get((repeat, value)) for value in values]
                for repeat in sorted({each.point.repeat for each in group})
            ]
            whole = [row for row in rows if None not in row]
            trend = _trend(np.array(whole, float)) if len(whole) > 1 and len(values) > 1 else None
            if trend is not None:
                # Two of all possible orders: all repeats ascending, or all descending.
                least = 2 / math.factorial(len(values)) ** len(whole)
                yield Trend(along, held, name, *trend, min(1.0, least), len(whole))


def _trend(table: Table) -> tuple[float, float] | None:
    """Return the mean rank correlation of the rows with the columns' order, and its p-value.

    Args:
        table: A metric by repeat and value [repeats, values], 2 or more of each.

    Returns:
        Both; None if the metric is constant in each repeat.
    """
    if not np.ptp(table, axis=1).any():
        return None
    count = table.shape[1]
    order = np.arange(count) - (count - 1) / 2
    ranks = stats.rankdata(table, axis=1) - (count + 1) / 2
    sizes = np.linalg.norm(ranks, axis=1) * np.linalg.norm(order)
    rho = float(np.mean(np.divide(ranks @ order, sizes, out=np.zeros(len(table)), where=sizes > 0)))
    if count == 2:  # noqa: PLR2004
        return rho, float(stats.wilcoxon(table[:, 1], table[:, 0]).pvalue)
    up, down = (float(stats.page_trend_test(one).pvalue) for one in (table, -table))
    return rho, min(1.0, 2 * min(up, down))
