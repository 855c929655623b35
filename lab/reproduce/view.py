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
from lab.tables import Cell, table_of, wrapped
from lab.text import visible

_STYLES: Final = {
    Verdict.REPRODUCED: "green",
    Verdict.NOT_REPRODUCED: "bold red",
    Verdict.OK: "green",
    Verdict.FAILED: "bold red",
}


def results_table(evaluation: Evaluation) -> Table:
    """A row for each claim, below a line for each kind."""
    rows: list[list[Cell]] = []
    for kind, title in KINDS.items():
        members = [each for each in evaluation.claims if each.kind == kind]
        fitted = chain.from_iterable(evaluation.fitted.values()) if kind == "fitted" else ()
        note = ", ".join(fitted)
        if members:
            rows += [[""], [Text(visible(f"{title} ({note})" if note else title), "bold")]]
        places = ["", *(each.where for each in members)]
        rows += [_row(each, before) for each, before in zip(members, places, strict=False)]
    table = table_of(["claim", ">printed", ">ours", "verdict", "why"], rows[1:])
    return wrapped(table, 0, 4)


def _row(result: Result, place_before: str) -> list[Cell]:
    claim = Text(visible(result.text))
    if result.where != place_before:
        claim.append(f"\n{visible(result.where)}", "dim")
    return [
        claim,
        "" if result.printed is None else compared(result.printed),
        Text("\n".join(map(visible, ours(result)))),
        Text(result.verdict, _STYLES.get(result.verdict, "yellow")),
        result.why,
    ]


def ours(result: Result) -> list[str]:
    """The middle of our values, and below it the interval or the unit."""
    if result.ours is None:
        return []
    if result.interval is not None:
        return [compared(result.ours), band(result.interval.low, result.interval.high)]
    return [compared(result.ours), *([result.unit] if result.printed is None else [])]
