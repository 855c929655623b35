"""The tables of a sweep, for the terminal and as a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

import pandas as pd
from rich.table import Table

from lab.analysis.grid import RunResult, metric_names
from lab.analysis.sweep_statistics import Setting, Trend
from lab.formatting import fixed, p_value
from lab.statistics import Mean
from lab.tables import table_of

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
    """Return `0.8523 ± 0.0041`."""
    if mean is None:
        return ""
    return _digits(mean.value) + ("" if mean.half is None else f" ± {_digits(mean.half)}")


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
