"""The comparison of runs as tables and as JSON."""

from __future__ import annotations

import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from lab.analysis.comparison import FINAL, Row, Side, diff, rows
from lab.formatting import UNKNOWN, counted, figure, ratio, signed
from lab.store.progress import FINAL_LOSS
from lab.tables import Cell, fitting, state_cell, table_of, terminal_width, wrapped
from lab.text import clipped, visible

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
            task: [_row_as_json(row) for row in _of_task(sides, task)] for task in _tasks(sides)
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
    parts |= {task: _of_task(sides, task) for task in _tasks(sides)}
    same = sum(row.is_same for part in parts.values() for row in part)
    if not everything:
        parts = {name: [row for row in part if not row.is_same] for name, part in parts.items()}
    table, left_out = _figures_table(parts, letters)
    yield table
    if left_out:
        names = ", ".join(name.removeprefix(">") for name in left_out)
        yield Text(f"not shown at this width: {names}; --json prints all", "dim")
    if same and not everything:
        yield _same(same, "metric")
    if any(row.name.startswith(FINAL) for part in parts.values() for row in part):
        yield Text(f"{FINAL}: {FINAL_LOSS}", "dim")


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
        found = [row for row in parts[part] if not row.is_absent_problem]
        if found and part != title:
            lines += [[""], [Text(visible(part), "bold")]]
        lines += [_figures_line(row) for row in found]
    full = [[*line, *[""] * (len(heads) - len(line))] for line in lines]
    give_way = [name for end in ("/ A", "- A") for name in heads if name.endswith(end)]
    whole = [name for name in heads[1:] if name not in give_way]
    return fitting(heads, full, width=terminal_width(sys.stdout), give_way=give_way, whole=whole)


def _figures_line(row: Row) -> list[Cell]:
    cells: list[Cell] = [clipped(row.name, _NAME), _known(row.values[0], row.unit)]
    others = zip(row.values, row.differences, row.ratios, strict=True)
    for value, difference, relative in list(others)[1:]:
        cells += [
            _known(value, row.unit),
            signed(difference, row.unit, row.values[0]),
            ratio(relative),
        ]
    return cells


def _known(value: float | None, unit: str) -> str:
    return figure(value, unit) or UNKNOWN


def _tasks(sides: Sequence[Side]) -> list[str]:
    return list(dict.fromkeys(task for side in sides for task in side.tasks))


def _of_task(sides: Sequence[Side], task: str) -> list[Row]:
    return rows([side.tasks.get(task, {}) for side in sides])


def _row_as_json(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "unit": row.unit,
        "values": list(row.values),
        "differences": row.differences,
        "ratios": row.ratios,
    }


def _letter(place: int) -> str:
    """Return the letter of a run: A to Z, then A1."""
    number, index = divmod(place, len(string.ascii_uppercase))
    return string.ascii_uppercase[index] + (str(number) if number else "")
