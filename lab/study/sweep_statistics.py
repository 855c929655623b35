"""The statistics of a sweep, a mean with its interval for each setting and trends; its tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from rich.table import Table
from scipy import stats

from lab.base.formatting import fixed, p_value
from lab.base.statistics import Floats, Mean, mean_of
from lab.base.tables import table_of
from lab.study.batches import RunResult, combinations, metric_names


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


def _trend(table: Floats) -> tuple[float, float] | None:
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


SIGNIFICANT: Final = 0.05


def settings_table(results: Sequence[RunResult], settings: Sequence[Setting]) -> Table:
    """Return a row for each setting: values, runs, and each metric's mean with its interval."""
    names = metric_names(results)
    heads = [*settings[0].values, ">runs", *(f">{name}" for name in names)]
    rows = [
        [
            *setting.values.values(),
            _runs(setting),
            *(_cell(setting, name) for name in names),
        ]
        for setting in settings
    ]
    return table_of(heads, rows)


def trends_table(trends: Sequence[Trend]) -> Table:
    """Return a row for each metric and setting of the fixed parameters: rho, p, conclusion."""
    held = list(trends[0].held)
    heads = [*held, f"metric by {trends[0].along}", ">rho", ">p", ">repeats", ""]
    rows = [
        [
            *trend.held.values(),
            trend.figure,
            f"{trend.rho:+.2f}",
            p_value(trend.p, ".4f"),
            str(trend.repeats),
            conclusion(trend),
        ]
        for trend in trends
    ]
    return table_of(heads, rows)


def _runs(setting: Setting) -> str:
    """Return the number of runs that succeeded, and how many of these diverged."""
    count = f"{setting.runs}" if setting.runs == setting.of else f"{setting.runs} of {setting.of}"
    return f"{count}, {setting.diverged} diverged" if setting.diverged else count


def _cell(setting: Setting, name: str) -> str:
    """Return a mean; with the number of runs if some runs do not have the metric."""
    mean = setting.means.get(name)
    if mean is None or mean.runs == setting.runs:
        return format_mean(mean)
    return f"{format_mean(mean)} ({mean.runs} of {setting.runs})"


def format_mean(mean: Mean | None) -> str:
    """Return `0.8523 ± 0.0041`; "" without a mean."""
    return "" if mean is None else mean.text(_digits)


def conclusion(trend: Trend) -> str:
    """Return the conclusion of a trend, as text."""
    if trend.least_p >= SIGNIFICANT:
        return "too few repeats"
    if trend.p >= SIGNIFICANT:
        return "no trend"
    return "rises" if trend.rho > 0 else "falls"


def as_json(
    results: Sequence[RunResult], settings: Iterable[Setting], trends: Iterable[Trend]
) -> Any:  # noqa: ANN401
    """Return everything as a JSON value."""
    return {
        "runs": [
            {
                "run_id": each.summary.run_id,
                "state": each.summary.state,
                "reason": each.summary.reason,
                "diverged": each.diverged,
                "values": dict(each.point.values),
                "repeat": each.point.repeat,
                "figures": each.metrics(),
            }
            for each in results
        ],
        "settings": [asdict(each) for each in settings],
        "trends": [asdict(each) for each in trends],
    }


def run_rows(results: Sequence[RunResult]) -> list[dict[str, Any]]:
    """Return the values and metrics of each run: id, state, values, repeat, metrics."""
    return [
        {
            "run_id": each.summary.run_id,
            "state": each.summary.state,
            **each.point.values,
            "repeat": each.point.repeat,
            **dict.fromkeys(metric_names(results), ""),
            **each.metrics(),
        }
        for each in results
    ]


def as_csv(results: Sequence[RunResult]) -> str:
    """Return a CSV file with a header and a row for each run."""
    return pd.DataFrame(run_rows(results)).to_csv(index=False)


def _digits(value: float) -> str:
    return fixed(value, 0) if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004
