"""Show the results of claims as a table of at most 80 columns."""

from __future__ import annotations

from itertools import chain
from typing import Final

from rich.table import Table
from rich.text import Text

from lab.formatting import band, compared
from lab.reproduce.claims import KINDS
from lab.reproduce.evaluation import Evaluation
from lab.reproduce.verdicts import Result, Verdict
from lab.tables import Cell, table_of
from lab.text import visible, wrapped

_STYLES: Final = {
    Verdict.REPRODUCED: "green",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_REPRODUCED: "bold red",
    Verdict.OK: "green",
    Verdict.UNCLEAR: "yellow",
    Verdict.FAILED: "bold red",
}
_CLAIM, _OURS, _WHY = 23, 13, 17
"""The widths of the columns in characters; the others have 7 and 12, and there are 2 between."""


def results_table(evaluation: Evaluation) -> Table:
    """A row for each claim, below a line for each kind."""
    table = table_of(["claim", ">printed", ">ours", "verdict", "why"])
    for kind in KINDS:
        members = [each for each in evaluation.claims if each.kind == kind]
        if not members:
            continue
        title = KINDS[kind]
        if kind == "fitted":
            title += f" ({', '.join(chain.from_iterable(evaluation.fitted.values()))})"
        table.add_row(_lines(title, _CLAIM, style="bold"))
        places = ["", *(each.where for each in members)]
        for member, before in zip(members, places, strict=False):
            table.add_row(*_row(member, "" if member.where == before else member.where))
        table.add_section()
    return table


def _row(result: Result, place: str) -> list[Cell]:
    claim = _lines(result.text, _CLAIM)
    if place:
        claim = Text("\n").join([claim, _lines(place, _CLAIM, style="dim")])
    return [
        claim,
        "" if result.printed is None else compared(result.printed),
        Text("\n").join(_lines(each, _OURS) for each in ours(result)),
        # One part a line: the longest verdict would take a fifth of the table's width.
        Text("_\n".join(result.verdict.split("_")), style=_STYLES[result.verdict]),
        _lines(result.why, _WHY),
    ]


def _lines(text: str, width: int, style: str = "") -> Text:
    return Text("\n".join(wrapped(visible(text), width)), style=style)


def ours(result: Result) -> list[str]:
    """The middle of our values, and below it the interval or the unit."""
    if result.ours is None:
        return []
    if result.interval is not None:
        return [compared(result.ours), band(result.interval.low, result.interval.high)]
    return [compared(result.ours), *([result.unit] if result.printed is None else [])]
