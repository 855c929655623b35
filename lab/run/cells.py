"""Tables on a terminal, and how states look in them.

All that comes from a task is sanitized, and never read as rich's markup.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.task.states import State
from lab.task.text import visible

PIPE_WIDTH: Final = 200
"""Columns of a table that goes into a file or a pipe."""

STYLES: Final[Mapping[str, str]] = {
    State.PENDING: "dim",
    State.STARTING: "yellow",
    State.READY: "yellow",
    State.TRAINING: "cyan",
    State.SUCCEEDED: "green",
    State.FAILED: "bold red",
    State.LOST: "bold red",
    State.CANCELLED: "magenta",
}

Cell = str | Text


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """A plain table; a column that begins with `>` is set flush right."""
    found = table(*columns)
    for row in rows:
        # A text as such would be read as markup, and its brackets with it.
        found.add_row(*(Text(visible(cell)) if isinstance(cell, str) else cell for cell in row))
    return found


def show(renderable: Any, *, to_stderr: bool = False) -> None:  # noqa: ANN401  (what rich draws)
    """Print to stdout, or to stderr; a file or a pipe gets wide lines, which wrap nowhere."""
    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    Console(file=stream, width=width, highlight=False, soft_wrap=False).print(renderable)


def width_of(stream: TextIO) -> int:
    """The number of columns of a terminal, or of what a file or a pipe gets."""
    return Console(file=stream).width if stream.isatty() else PIPE_WIDTH


def table(*columns: str) -> Table:
    """An empty table; a column that begins with `>` is set flush right."""
    found = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        right = column.startswith(">")
        lines = column.removeprefix(">").split("\n")
        found.add_column(
            Text("\n".join(map(visible, lines))),
            justify="right" if right else "left",
            no_wrap=True,
        )
    return found


def state_cell(state: str) -> Text:
    """A state in its colour; what is none of the protocol's, as a fault."""
    known = state in set(State)
    return Text(visible(state), style=STYLES[State(state)] if known else "bold red")
