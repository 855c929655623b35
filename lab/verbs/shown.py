"""Show results as tables: in a notebook as HTML, at the Python prompt as text."""

from __future__ import annotations

import io
from collections.abc import Iterable
from html import escape
from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from lab.base.tables import PIPE_WIDTH, show
from lab.base.text import visible


class Shown:
    """A result that shows itself as text and tables."""

    def _shown(self) -> Group:
        """Return the texts and tables."""
        raise NotImplementedError

    def show(self) -> None:
        """Print them."""
        for part in self._shown().renderables:
            show(part)

    def _repr_html_(self) -> str:
        return html(self._shown())

    def __repr__(self) -> str:
        return plain(self._shown())


def html(group: Group) -> str:
    """Return texts and tables as HTML; consecutive texts are one block with fixed letters."""
    parts = []
    for is_table, several in groupby(group.renderables, lambda part: isinstance(part, Table)):
        if is_table:
            parts += [_table(part) for part in several if isinstance(part, Table)]
        else:
            parts.append(f"<pre>{'<br>'.join(map(_text, several))}</pre>")
    return "".join(parts)


def plain(group: Group) -> str:
    """Return texts and tables as plain text without colours."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=PIPE_WIDTH,
        highlight=False,
        color_system=None,
        force_jupyter=False,  # otherwise rich displays the text in a notebook
    )
    console.print(group)
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip().split("\n"))


def _table(table: Table) -> str:
    """Return a table as HTML; its numbers are right-aligned."""
    sides = [f' style="text-align: {column.justify}"' for column in table.columns]
    head = _row("th", sides, (column.header for column in table.columns))
    body = "".join(
        _row("td", sides, cells)
        for cells in zip(*(column.cells for column in table.columns), strict=True)
    )
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _row(tag: str, sides: Iterable[str], cells: Iterable[RenderableType]) -> str:
    row = (f"<{tag}{side}>{_text(cell)}</{tag}>" for side, cell in zip(sides, cells, strict=True))
    return f"<tr>{''.join(row)}</tr>"


def _text(cell: object) -> str:
    """Return a text of rich as HTML, in the colour of the whole text."""
    text = cell.plain if isinstance(cell, Text) else str(cell)
    safe = "<br>".join(escape(visible(line)) for line in text.split("\n"))
    style = cell.style if isinstance(cell, Text) else ""
    css = (Style.parse(style) if isinstance(style, str) else style).get_html_style()
    return f'<span style="{escape(css)}">{safe}</span>' if css else safe
