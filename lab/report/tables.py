"""The report's tables: what stands in each cell, as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from lab.figures.series import interval
from lab.figures.style import rate
from lab.numbers import fixed
from lab.report.data import Reported, by_group
from lab.run.summary import Summary

Form = Callable[[float], str]
"""How a number is written."""

NONE: Final = "–"  # noqa: RUF001  (as tables have it)
"""Stands for what is not known, or does not apply."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts.

    Attributes:
        columns: Their names; those that begin with `>` hold numbers, which are set flush right and
            stay whole, and those with `~` texts that may be broken anywhere.
        rows: A text for each column.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def key_figures(summary: Summary) -> list[tuple[str, str]]:
    """The few figures of a run that one looks for first, as far as they are known."""
    found = [
        ("state", summary.state),
        ("accuracy", share(summary.accuracy)),
        ("global step", number(summary.global_step, ",")),
        ("global steps a second", pace(summary.steps_per_s)),
        ("wall time, from the command on", seconds(summary.wall_s)),
        ("until all had begun, from the command on", seconds(summary.first_step_s)),
        ("every update counted", yes_no(summary.updates_conserved)),
    ]
    return [(name, text) for name, text in found if text != NONE]


def tasks(summary: Summary) -> Table:
    """A row for each task of a run."""
    has_gpus = any(task.gpu_utilisation is not None for task in summary.tasks)
    columns = ("task", "node", "state", ">own steps", ">global step", ">loss", ">accuracy",
               ">steps/s", ">time")  # fmt: skip
    rows = []
    for task in summary.tasks:
        row = (
            task.task,
            task.node,
            task.state + (f" ({task.cause})" if task.cause else ""),
            number(task.local_step, ","),
            number(task.global_step, ","),
            share(task.loss),
            share(task.accuracy),
            pace(task.steps_per_s),
            seconds(task.time_s),
        )
        rows.append((*row, percent(task.gpu_utilisation)) if has_gpus else row)
    return Table((*columns, ">GPU busy") if has_gpus else columns, tuple(rows))


def results(summary: Summary) -> Table | None:
    """What the experiment has found by itself; None where it looks for nothing."""
    rows = tuple(
        (
            each.name,
            each.task or NONE,
            number(each.value, ".6g"),
            between(each.low, each.high),
            yes_no(each.as_expected),
        )
        for each in summary.results
    )
    columns = ("~what", "by", ">value", ">has to lie", "as expected")
    return Table(columns, rows) if rows else None


def runs(reported: Sequence[Reported]) -> Table:
    """A row for each of several runs."""
    columns = (
        "run", "~what was run", "state", ">seed", ">global step", ">accuracy", ">steps/s",
        ">first step", ">wall time", "counted",
    )  # fmt: skip
    rows = [
        (
            each.info.run_id,
            each.trace.group,
            each.summary.state,
            number(each.info.seed, "d"),
            number(each.summary.global_step, ","),
            share(each.summary.accuracy),
            pace(each.summary.steps_per_s),
            seconds(each.summary.first_step_s),
            seconds(each.summary.wall_s),
            yes_no(each.summary.updates_conserved),
        )
        for each in reported
    ]
    return Table(columns, tuple(rows))


_MEANS: Final[tuple[tuple[str, Form, Callable[[Summary], float | None]], ...]] = (
    (">accuracy", partial(fixed, decimals=4), lambda summary: summary.accuracy),
    (">global step", partial(fixed, decimals=0), lambda summary: summary.global_step),
    (">steps/s", rate, lambda summary: summary.steps_per_s),
    (">wall time (s)", partial(fixed, decimals=1), lambda summary: summary.wall_s),
)


def groups(reported: Sequence[Reported]) -> Table | None:
    """A row for each group of runs that differ by their seeds alone: means with their intervals.

    None where every group is a single run: its row would be that of the runs again.
    """
    if len(by_group(reported)) == len(reported):
        return None
    rows = []
    for name, several in by_group(reported).items():
        good = [each.summary for each in several if each.summary.state == "succeeded"]
        cells = [mean([get(one) for one in good], form) for _, form, get in _MEANS]
        rows.append((name, f"{len(good)} of {len(several)}", *cells))
    return Table(("~what was run", ">succeeded", *(name for name, _, _ in _MEANS)), tuple(rows))


def marks(reported: Sequence[Reported]) -> Table | None:
    """What was done to the runs; None where it was nothing. One run's are numbered as drawn."""
    rows: list[tuple[str, ...]] = []
    for each in reported:
        for place, mark in enumerate(each.trace.marks, 1):
            first = str(place) if len(reported) == 1 else each.info.run_id
            until = NONE if mark.end is None else f"{mark.end:.1f} s"
            rows.append((first, f"{mark.begin:.1f} s", until, mark.task, mark.what, mark.text))
    head = "no." if len(reported) == 1 else "run"
    return (
        Table((head, ">from", ">until", "task", "what", "~in words"), tuple(rows)) if rows else None
    )


def mean(values: Sequence[float | None], form: Form) -> str:
    """A mean with its 95% interval, over those values that are known."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return NONE
    middle, half = interval(np.array(known, float)[:, None])
    if math.isnan(half[0]):
        return form(middle[0])
    return f"{form(middle[0])} ± {form(half[0])}"


def number(value: float | None, form: str) -> str:
    """A number, or a dash."""
    return NONE if value is None else format(value, form)


def share(value: float | None) -> str:
    """A loss or a share of one with four decimals, or a dash."""
    return NONE if value is None else fixed(value, 4)


def pace(value: float | None) -> str:
    """So many a second, or a dash."""
    return NONE if value is None else rate(value)


def seconds(value: float | None) -> str:
    """A time, or a dash."""
    return NONE if value is None else f"{fixed(value, 1)} s"


def percent(value: float | None) -> str:
    """A share, or a dash."""
    return NONE if value is None else f"{fixed(100 * value, 0)}%"


def yes_no(value: bool | None) -> str:
    """Yes, no, or a dash."""
    return NONE if value is None else ("yes" if value else "NO")


def between(low: float | None, high: float | None) -> str:
    """Where something has to lie."""
    if low is None and high is None:
        return NONE
    if low == high:
        return f"{low:,.6g}"
    if low is None:
        return f"≤ {high:,.6g}"
    return f"≥ {low:,.6g}" if high is None else f"{low:,.6g} to {high:,.6g}"
