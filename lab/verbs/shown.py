"""Tables and texts in a notebook as HTML, at the Python prompt as text."""

from __future__ import annotations

import io
from collections.abc import Iterable
from html import escape
from itertools import groupby

from rich.console import Console, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from lab.base.tables import PIPE_WIDTH
from lab.base.text import visible


def html(parts: Iterable[RenderableType]) -> str:
    """Return texts and tables as HTML; consecutive texts are one block with fixed letters."""
    found = []
    for is_table, several in groupby(parts, lambda part: isinstance(part, Table)):
        if is_table:
            found += [_table(part) for part in several if isinstance(part, Table)]
        else:
            found.append(f"<pre>{'<br>'.join(map(_text, several))}</pre>")
    return "".join(found)


def plain(parts: Iterable[RenderableType]) -> str:
    """Return texts and tables as plain text without colours."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=PIPE_WIDTH,
        highlight=False,
        color_system=None,
        force_jupyter=False,  # otherwise rich displays the text in a notebook
    )
    for part in parts:
        if isinstance(part, str):
            stream.writelines(f"{visible(line)}\n" for line in part.split("\n"))
        else:
            console.print(part)
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


def _text(cell: RenderableType) -> str:
    """Return a text of rich as HTML, in the colour of the whole text."""
    text = cell.plain if isinstance(cell, Text) else plain([cell])
    safe = "<br>".join(escape(visible(line)) for line in text.split("\n"))
    style = cell.style if isinstance(cell, Text) else ""
    css = (Style.parse(style) if isinstance(style, str) else style).get_html_style()
    return f'<span style="{escape(css)}">{safe}</span>' if css else safe
