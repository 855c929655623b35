"""The tables of a sweep, on a terminal and as a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.table import Table

from lab.formatting import fixed, p_value
from lab.run.tables import table_of
from lab.sweep.results import RunResult, figure_names
from lab.sweep.statistics import Mean, Setting, Trend

SIGNIFICANT: Final = 0.05


def settings_table(made: Sequence[RunResult], settings: Sequence[Setting]) -> Table:
    """A row for each setting: its values, its runs, and each figure's mean with its interval."""
    figures = figure_names(made)
    heads = [*settings[0].values, ">runs", *(f">{name}" for name in figures)]
    rows = [
        [
            *setting.values.values(),
            _runs(setting),
            *(_cell(setting, name) for name in figures),
        ]
        for setting in settings
    ]
    return table_of(heads, rows)


def trends_table(trends: Sequence[Trend]) -> Table:
    """A row for each figure and each setting of what is held: rho, p and a word."""
    held = list(trends[0].held)
    heads = [*held, f"as {trends[0].along} grow", ">rho", ">p", ">repeats", ""]
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
    """How many runs succeeded, and how many of these diverged."""
    count = f"{setting.runs}" if setting.runs == setting.of else f"{setting.runs} of {setting.of}"
    return f"{count}, {setting.diverged} diverged" if setting.diverged else count


def _cell(setting: Setting, figure: str) -> str:
    """A mean; and over how many runs, where some have no such figure."""
    mean = setting.means.get(figure)
    if mean is None or mean.runs == setting.runs:
        return format_mean(mean)
    return f"{format_mean(mean)} ({mean.runs} of {setting.runs})"


def format_mean(mean: Mean | None) -> str:
    """`0.8523 ± 0.0041`."""
    if mean is None:
        return ""
    return _digits(mean.value) + ("" if mean.half is None else f" ± {_digits(mean.half)}")


def conclusion(trend: Trend) -> str:
    """What a trend comes to, in a word."""
    if trend.least_p >= SIGNIFICANT:
        return "too few repeats"
    if trend.p >= SIGNIFICANT:
        return "no trend"
    return "rises" if trend.rho > 0 else "falls"


def as_json(made: Sequence[RunResult], settings: Iterable[Setting], trends: Iterable[Trend]) -> Any:  # noqa: ANN401
    """All of it, for a program."""
    return {
        "runs": [
            {
                "run_id": each.summary.run_id,
                "state": each.summary.state,
                "reason": each.summary.reason,
                "diverged": each.diverged,
                "values": dict(each.point.values),
                "repeat": each.point.repeat,
                "figures": each.figures(),
            }
            for each in made
        ],
        "settings": [asdict(each) for each in settings],
        "trends": [asdict(each) for each in trends],
    }


def as_csv(made: Sequence[RunResult]) -> str:
    """A row for each run, below a row of names."""
    text = io.StringIO()
    columns = ["run_id", "state", *made[0].point.values, "repeat", *figure_names(made)]
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for each in made:
        about = {"run_id": each.summary.run_id, "state": each.summary.state}
        writer.writerow(
            {**each.figures(), **each.point.values, "repeat": each.point.repeat, **about}
        )
    return text.getvalue()


def _digits(value: float) -> str:
    return fixed(value, 0) if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004
