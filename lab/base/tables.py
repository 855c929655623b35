"""Tables on a terminal, and the width that they have.

A text in a cell is sanitized, and never interpreted as markup of rich.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.base.text import visible

PIPE_WIDTH: Final = 200
"""The least width, in characters, of a table in a file or a pipe."""

_UNLIMITED: Final = 1_000_000
"""A width, in characters, that no table reaches."""

_MANY: Final = 200
"""From this many rows on, they become the lines of one row: rich takes long for each row."""

Cell = str | Text


def _as_text(cell: Cell) -> Text:
    """Return a cell for rich, which would interpret the brackets in a `str` as markup."""
    return Text(visible(cell)) if isinstance(cell, str) else cell


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Cell]] = ()) -> Table:
    """Return a plain table; a column whose name begins with `>` is right-aligned."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        lines = column.removeprefix(">").split("\n")
        table.add_column(
            Text("\n".join(map(visible, lines))),
            justify="right" if column.startswith(">") else "left",
            no_wrap=True,
        )
    for row in rows:
        table.add_row(*map(_as_text, row))
    return table


def fitting(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    width: int | None,
    give_way: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> tuple[Table, list[str]]:
    """Return a table that fits into a width, and the names of the columns that it leaves out.

    Args:
        columns: The columns, as in `table_of`.
        rows: The cells of each row.
        width: The width in characters; None: no limit.
        give_way: The columns that may be left out, the least important first.
        whole: The columns that are never cut: in a table that is still too wide, they wrap.
    """
    cells = [[*map(_as_text, row)] for row in rows]
    merged = [[Text("\n").join(column) for column in zip(*cells, strict=True)]]
    left_out: list[str] = []
    while True:
        kept = [place for place, name in enumerate(columns) if name not in left_out]

        names = [columns[place] for place in kept]
        lines = merged if len(cells) >= _MANY else cells
        table = table_of(names, [[line[place] for place in kept] for line in lines])
        if width is None or natural_width(table) <= width:
            return table, left_out
        if len(left_out) == len(give_way):
            break
        left_out.append(give_way[len(left_out)])
    table = table_of(names, [[line[place] for place in kept] for line in cells])
    return wrapped(table, *(kept.index(columns.index(name)) for name in whole)), left_out


def wrapped(table: Table, *columns: int) -> Table:
    """Wrap these columns in a narrow table, instead of cutting them."""
    for column in columns:
        table.columns[column].no_wrap, table.columns[column].overflow = False, "fold"
    return table


def natural_width(table: Table) -> int:
    """Return the width of a table, in characters, that cuts and wraps nothing."""
    return Console(width=_UNLIMITED).measure(table).maximum


def show(renderable: Any, *, to_stderr: bool = False) -> None:  # noqa: ANN401  (what rich draws)
    """Print to stdout or stderr; in a file or a pipe, lines are wide, and a table is complete."""
    stream = sys.stderr if to_stderr else sys.stdout
    width = None
    if not stream.isatty():
        cuts = isinstance(renderable, Table) and all(
            column.no_wrap for column in renderable.columns
        )
        width = _UNLIMITED if cuts else PIPE_WIDTH
    Console(file=stream, width=width, highlight=False, soft_wrap=False).print(renderable)


def terminal_width(stream: TextIO) -> int | None:
    """Return the width of a terminal in characters; None for a file or a pipe."""
    return Console(file=stream).width if stream.isatty() else None


def width_of(stream: TextIO) -> int:
    """Return the width of a stream in characters; for a file or a pipe, `PIPE_WIDTH`."""
    return terminal_width(stream) or PIPE_WIDTH
