"""The settings and the metrics of runs beside those of other runs, as tables and as JSON."""

from __future__ import annotations

import math
import string
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

import pandas as pd
from rich.table import Table
from rich.text import Text

from lab.base.formatting import UNKNOWN, counted, figure, ratio, signed
from lab.base.tables import Cell, fitting, table_of, terminal_width, wrapped
from lab.base.text import clipped, visible
from lab.protocol.records.reader import is_number
from lab.runner.result_table import state_cell
from lab.runner.status import status_or_warn
from lab.runner.store.dataframe import steps_frame
from lab.runner.store.directory import Probe, RunDir
from lab.runner.store.measures import OF_TASK, quantities, run_quantities
from lab.runner.store.names import NamedRun
from lab.runner.store.run_info import RunInfo
from lab.runner.store.settings import DIGITS, SEED, seed_of, settings_of
from lab.runner.store.summarize import sum_up
from lab.runner.store.summary import Summary
from lab.runner.store.task_progress import FINAL_LOSS

STEP_FIELDS: Final = {
    "step time (median)": "step_time_s",
    "wait time (median)": "wait_time_s",
}
"""Medians over the step records, in seconds, and their fields."""

FINAL: Final = "final loss"
"""The metric of a task; that of the run is the mean of its tasks. `FINAL_LOSS` describes it."""

_PROBLEMS: Final = ("updates lost", "steps repeated", "tasks restarted", "records lost")

_ALWAYS: Final = frozenset(
    {
        "accuracy",
        "diverged at step",
        "global step",
        "global steps/s",
        "images/s",
        "local steps/s",
        *_PROBLEMS,
    }
)
"""Metrics that `lab compare` shows even if they are the same in all runs."""

Metrics = Mapping[str, tuple[float | None, str]]
"""Name to a value and its unit. The value may be NaN or infinite, or None if unknown.

Units are those of `lab.base.formatting`, or "" if unknown.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of all runs.

    Attributes:
        name: The name of the metric.
        unit: As in `Metrics`.
        values: The value of each run; None if unknown.
    """

    name: str
    unit: str
    values: Sequence[float | None]

    @property
    def is_same(self) -> bool:
        """Whether all runs have the same value, and the metric need not be shown then.

        NaN is never the same. The results of an experiment have no unit, and are always shown.
        """
        first = self.values[0]
        is_minor = self.unit != "" and self.name not in _ALWAYS
        return is_minor and first is not None and all(each == first for each in self.values)

    @property
    def differences(self) -> list[float | None]:
        """The difference of each run to the first."""
        first = self.values[0]
        return [
            None if first is None or value is None else _finite(value - first)
            for value in self.values
        ]

    @property
    def ratios(self) -> list[float | None]:
        """The ratio of each run to the first; None if the first is 0."""
        first = self.values[0]
        return [
            None if not first or value is None else _finite(value / first) for value in self.values
        ]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the runs.

    Attributes:
        summary: Its summary.
        started_unix: When the user started it, in seconds since the epoch.
        made: Its settings.
        figures: The metrics of the run as a whole.
        tasks: Task to its metrics.
        label: The user's name for it, or "".
    """

    summary: Summary
    started_unix: float
    made: Mapping[str, str]
    figures: Metrics
    tasks: Mapping[str, Metrics]
    label: str = ""


def read_side(named: NamedRun, probe: Probe) -> Side:
    """Read one run.

    Raises:
        LabError: A file of the run is missing or unreadable.
    """
    run = named.directory
    status = status_or_warn(run, probe)
    info = status.info
    summary = sum_up(run, info, status.statuses)
    steps = steps_frame(run)
    return Side(
        summary=summary,
        started_unix=info.started_unix,
        made=describe(run, info),
        figures=_known(_of_run(summary, steps)),
        tasks={
            task.task: _known(
                chain(quantities(OF_TASK, task), _of_steps(steps[steps["task"] == task.task]))
            )
            for task in summary.tasks
        },
        label=named.label,
    )


def rows(runs: Sequence[Metrics]) -> list[Row]:
    """Return a row for each metric that at least one run has, in their order."""
    names = dict.fromkeys(chain.from_iterable(runs))
    units = {name: unit for run in reversed(runs) for name, (_, unit) in run.items()}
    found = [
        Row(name, units[name], [run.get(name, (None, ""))[0] for run in runs]) for name in names
    ]
    return [row for row in found if any(value is not None for value in row.values)]


def _of_run(summary: Summary, steps: pd.DataFrame) -> Iterator[tuple[str, float | None, str]]:
    yield from run_quantities(summary)
    yield from _of_steps(steps)
    firsts: dict[str, float | None] = {}
    for each in summary.results:
        if each.name not in firsts:
            yield each.name, firsts.setdefault(each.name, each.value), ""
        elif each.value != firsts[each.name]:
            yield f"{each.name}, {each.task}", each.value, ""


def _of_steps(steps: pd.DataFrame) -> Iterator[tuple[str, float | None, str]]:
    for name, field in STEP_FIELDS.items():
        values = steps[field].dropna()
        yield name, float(values.median()) if len(values) else None, "s"


def _known(found: Iterable[tuple[str, float | None, str]]) -> Metrics:
    return {name: (value if is_number(value) else None, unit) for name, value, unit in found}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


_DIGEST: Final = "sha256:"


def describe(run: RunDir, info: RunInfo) -> dict[str, str]:
    """Return the settings of a run, its seed and its environment, without empty ones."""
    return settings_of(run, info) | {name: text for name, text in _environment(info) if text}


def diff(runs: Sequence[Mapping[str, str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Return which settings differ between runs, and which are the same.

    Returns:
        Name to the text of each run, "" for none; and the names of the equal settings.
    """
    names = dict.fromkeys(chain.from_iterable(runs))
    rows = {name: [each.get(name, "") for each in runs] for name in names}
    alike = [name for name, texts in rows.items() if len(set(texts)) == 1]
    return {name: texts for name, texts in rows.items() if name not in alike}, alike


def _environment(info: RunInfo) -> Iterator[tuple[str, str]]:
    yield SEED, seed_of(info)
    yield "cluster", info.project
    yield "commit", _commit(info)
    yield from ((f"{name} (tasks)", _shown(text)) for name, text in info.provenance.items())
    yield from ((f"{name} (client)", text) for name, text in info.versions.items())


def _commit(info: RunInfo) -> str:
    git = info.git or {}
    commit = str(git.get("commit", ""))[:DIGITS]
    return f"{commit} with changes" if commit and git.get("dirty") else commit


def _shown(text: str) -> str:
    """Return a digest as docker shows it; any other text unchanged."""
    is_digest = text.startswith(_DIGEST)
    return text.removeprefix(_DIGEST)[:DIGITS] if is_digest else text


_NAME: Final = 24  # columns of the name of a metric or a setting
_NOTHING: Final = "none"


def as_json(sides: Sequence[Side]) -> dict[str, Any]:
    """Return everything as a JSON value; differences and ratios are to the first run."""
    made, alike = diff([side.made for side in sides])
    return {
        "runs": [
            {
                "run_id": side.summary.run_id,
                "label": side.label,
                "experiment": side.summary.experiment,
                "backend": side.summary.backend,
                "state": side.summary.state,
                "started_unix": side.started_unix,
                "updates_conserved": side.summary.updates_conserved,
            }
            for side in sides
        ],
        "made": made,
        "alike": {name: sides[0].made[name] for name in alike},
        "figures": [_row_as_json(row) for row in rows([side.figures for side in sides])],
        "tasks": {
            task: [_row_as_json(row) for row in _task_rows(sides, task)] for task in _tasks(sides)
        },
    }


def tables(sides: Sequence[Side], *, everything: bool = False) -> Iterator[Table | Text]:
    """Yield the tables and lines to show; the runs are named A, B, C.

    Args:
        sides: The runs.
        everything: Whether to list what is the same in all runs, too; else it is only counted.
    """
    letters = [_letter(place) for place in range(len(sides))]
    yield _legend(letters, sides)
    made, alike = diff([side.made for side in sides])
    if made:
        lines = [[name, *(text or _NOTHING for text in texts)] for name, texts in made.items()]
        yield _wrapping(["different settings", *letters], lines)
    if everything and alike:
        yield _wrapping(["same settings", "all"], [(name, sides[0].made[name]) for name in alike])
    else:
        yield _same(len(alike), "setting")
    parts = {"results": rows([side.figures for side in sides])}
    parts |= {task: _task_rows(sides, task) for task in _tasks(sides)}
    same = sum(row.is_same for part in parts.values() for row in part)
    if not everything:
        parts = {name: [row for row in part if not row.is_same] for name, part in parts.items()}
    table, left_out = _figures_table(parts, letters)
    yield table
    if left_out:
        names = ", ".join(name.removeprefix(">") for name in left_out)
        yield Text(f"hidden at this width: {names}; --json prints all", "dim")
    if same and not everything:
        yield _same(same, "metric")
    if any(row.name.startswith(FINAL) for part in parts.values() for row in part):
        yield Text(f"{FINAL}: {FINAL_LOSS}", "dim")
    if SEED in made:
        yield Text("the seeds differ, so losses and accuracies differ by chance, too", "yellow")


def _same(count: int, noun: str) -> Text:
    """Return the line that counts what is the same in all runs."""
    if not count:
        return Text(f"no {noun} is the same", "dim")
    are, them = ("is", "it") if count == 1 else ("are", "them")
    return Text(f"{counted(count, noun)} {are} the same; --all lists {them}", "dim")


def _legend(letters: Sequence[str], sides: Sequence[Side]) -> Table:
    is_labelled = any(side.label for side in sides)
    columns = ("", *(["label"] if is_labelled else []), "run", "experiment", "backend", "state",
               "updates")  # fmt: skip
    return table_of(
        columns,
        [
            (
                letter,
                *([clipped(side.label, _NAME)] if is_labelled else []),
                side.summary.run_id,
                clipped(side.summary.experiment, _NAME),
                side.summary.backend,
                state_cell(side.summary.state),
                _KEPT[side.summary.updates_conserved],
            )
            for letter, side in zip(letters, sides, strict=True)
        ],
    )


_KEPT: Final[Mapping[bool | None, Cell]] = {
    True: "all kept",
    False: Text("LOST", "bold red"),
    None: "",
}


def _wrapping(heads: Sequence[str], lines: Sequence[Sequence[Cell]]) -> Table:
    """A table whose values continue on further lines where the terminal is narrow."""
    return wrapped(table_of(heads, lines), *range(1, len(heads)))


def _figures_table(
    parts: Mapping[str, Sequence[Row]], letters: Sequence[str]
) -> tuple[Table, list[str]]:
    """Return the table of all figures, and the columns that the terminal is too narrow for."""
    title, *others = parts
    heads = [title, f">{letters[0]}"]
    for letter in letters[1:]:
        heads += [f">{letter}", f">{letter} - A", f">{letter} / A"]
    lines: list[list[Cell]] = []
    for part in (title, *others):
        # A problem that no run had is not shown.
        found = [row for row in parts[part] if row.name not in _PROBLEMS or any(row.values)]
        if found and part != title:
            lines += [[""], [Text(visible(part), "bold")]]
        lines += [_figures_line(row) for row in found]
    full = [[*line, *[""] * (len(heads) - len(line))] for line in lines]
    give_way = [name for end in ("/ A", "- A") for name in heads if name.endswith(end)]
    whole = [name for name in heads[1:] if name not in give_way]
    return fitting(heads, full, width=terminal_width(sys.stdout), give_way=give_way, whole=whole)


def _figures_line(row: Row) -> list[Cell]:
    cells: list[Cell] = [clipped(row.name, _NAME), _shown_value(row.values[0], row.unit)]
    others = zip(row.values, row.differences, row.ratios, strict=True)
    for value, difference, relative in list(others)[1:]:
        cells += [
            _shown_value(value, row.unit),
            signed(difference, row.unit, row.values[0]),
            ratio(relative),
        ]
    return cells


def _shown_value(value: float | None, unit: str) -> str:
    return figure(value, unit) or UNKNOWN


def _tasks(sides: Sequence[Side]) -> list[str]:
    return list(dict.fromkeys(task for side in sides for task in side.tasks))


def _task_rows(sides: Sequence[Side], task: str) -> list[Row]:
    return rows([side.tasks.get(task, {}) for side in sides])


def _row_as_json(row: Row) -> dict[str, Any]:
    return asdict(row) | {"differences": row.differences, "ratios": row.ratios}


def _letter(place: int) -> str:
    """Return the letter of a run: A to Z, then A1."""
    number, index = divmod(place, len(string.ascii_uppercase))
    return string.ascii_uppercase[index] + (str(number) if number else "")
