"""The figures of a sweep: a mean and its interval for each setting, and what grows with what."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from lab.statistics import mean_with_ci
from lab.sweep.grid import combinations
from lab.sweep.results import RunResult, figure_names

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over runs.

    Attributes:
        value: The mean.
        half: Half of its 95% interval (Student's t); None for a single run.
        runs: Over how many.
    """

    value: float
    half: float | None
    runs: int


@dataclass(frozen=True, slots=True)
class Setting:
    """All runs with the same values.

    Attributes:
        values: The value of each quantity that was varied.
        runs: How many succeeded.
        of: How many were made.
        diverged: How many of those that succeeded have a loss or a result that is no number.
        means: Each figure's mean over those that succeeded.
    """

    values: Mapping[str, str]
    runs: int
    of: int
    diverged: int
    means: Mapping[str, Mean]


@dataclass(frozen=True, slots=True)
class Trend:
    """Whether a figure grows or falls with a quantity, where all others are held.

    Attributes:
        along: The quantity.
        held: The values of the others.
        figure: The figure.
        rho: Spearman's rank correlation in each repeat, their mean: -1 to 1.
        p: How likely a trend as clear as that is by chance alone; from both sides.
        least_p: The least that so many repeats of so many values can come to.
        repeats: Over how many repeats.
    """

    along: str
    held: Mapping[str, str]
    figure: str
    rho: float
    p: float
    least_p: float
    repeats: int


def means(made: Sequence[RunResult]) -> list[Setting]:
    """A row for each setting that was run."""
    found = []
    for values in combinations([each.point for each in made]):
        same = [each for each in made if dict(each.point.values) == values]
        succeeded = [each for each in same if each.succeeded]
        good = [each.figures() for each in succeeded]
        by_name = {
            name: [figures[name] for figures in good if name in figures]
            for name in figure_names(made)
        }
        found.append(
            Setting(
                values,
                len(good),
                len(same),
                sum(each.diverged for each in succeeded),
                {name: mean(several) for name, several in by_name.items() if several},
            )
        )
    return found


def mean(values: Sequence[float]) -> Mean:
    """The mean of measured values, with the interval that Student's t gives for it."""
    middle, half = map(float, mean_with_ci(values))
    return Mean(middle, half if len(values) > 1 else None, len(values))


def trends(made: Sequence[RunResult], along: str) -> Iterator[Trend]:
    """What grows or falls with a quantity whose values are numbers.

    By ranks, because nothing says that it does so in a straight line, and repeat by repeat, because
    the runs of a repeat share a seed: what one seed does to all of them is no trend. Three values
    and more: E. B. Page's test for ordered alternatives (1963); two: F. Wilcoxon's of signed ranks
    (1945). A repeat that lacks a run does not count.
    """
    if not all(_is_number(each.point.values[along]) for each in made):
        return
    good = [each for each in made if each.succeeded]
    values = sorted({each.point.values[along] for each in made}, key=float)
    others = [
        {name: text for name, text in each.point.values.items() if name != along} for each in good
    ]
    for held in [each for index, each in enumerate(others) if each not in others[:index]]:
        group = [each for each, other in zip(good, others, strict=True) if other == held]
        for name in figure_names(group):
            cells = {
                (each.point.repeat, each.point.values[along]): each.figures().get(name)
                for each in group
            }
            rows = [
                [cells.get((repeat, value)) for value in values]
                for repeat in sorted({each.point.repeat for each in group})
            ]
            whole = [row for row in rows if None not in row]
            trend = _trend(np.array(whole, float)) if len(whole) > 1 and len(values) > 1 else None
            if trend is not None:
                # All repeats in the one order or in the other, of all that there are.
                least = 2 / math.factorial(len(values)) ** len(whole)
                yield Trend(along, held, name, *trend, min(1.0, least), len(whole))


def _trend(table: Table) -> tuple[float, float] | None:
    """The mean of the rows' rank correlations with the columns' order, and its p.

    Args:
        table: A figure by repeat and value [repeats, values], 2 or more of each.

    Returns:
        Both; None where the figure is the same everywhere.
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


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
