"""Show the results of claims: as a table of at most 80 columns, and as a JSON file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from lab.formatting import band, compared, counted
from lab.reproduce.claims import COUNTED, KINDS, Kind, Source
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


def results_table(source: Source, results: Sequence[Result]) -> Table:
    """A row for each claim, below a line for each kind."""
    table = table_of(["claim", ">printed", ">ours", "verdict", "why"], [])
    for kind, members in grouped(results).items():
        table.add_row(_lines(title_of(kind, source), _CLAIM, style="bold"))
        places = ["", *(each.where for each in members)]
        for member, before in zip(members, places, strict=False):
            table.add_row(*_row(member, "" if member.where == before else member.where))
        table.add_section()
    return table


def grouped(results: Iterable[Result]) -> dict[Kind, list[Result]]:
    """The results by kind; empty kinds are left out."""
    every = list(results)
    found = {kind: [each for each in every if each.kind == kind] for kind in KINDS}
    return {kind: members for kind, members in found.items() if members}


def title_of(kind: Kind, source: Source) -> str:
    """The name of a kind; of fitted claims also the parameters."""
    if kind != "fitted":
        return KINDS[kind]
    return f"{KINDS[kind]} ({', '.join(p for r in source.recipes.values() for p in r.fitted)})"


def summary(results: Iterable[Result]) -> str:
    """The counts of each verdict on counted claims: `2 of 6 claims REPRODUCED, 4 INCONCLUSIVE`."""
    found = Counter(each.verdict for each in results if each.kind in COUNTED)
    shown = [f"{found[verdict]} {verdict}" for verdict in Verdict if found[verdict]]
    return f"{counted(found.total(), 'counted claim')}: {', '.join(shown)}"


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


def as_json(
    source: Source,
    results: Sequence[Result],
    runs: dict[str, dict[int, str]],
    excluded: dict[str, str],
) -> dict[str, Any]:
    """All results, the chosen runs by role and seed, and the excluded runs with their reasons."""
    return {
        "name": source.name,
        "source": source.title,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "summary": summary(results),
        "fitted": {role: recipe.fitted for role, recipe in source.recipes.items() if recipe.fitted},
        "claims": [asdict(result) for result in results],
        "runs": runs,
        "excluded": excluded,
    }


def path_of(store: Path, source: Source) -> Path:
    """A new path in the run store: `reproduce-book-async-20261122-081000.json`."""
    stem = f"reproduce-{source.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    found = store / f"{stem}.json"
    count = 1
    while found.exists():
        count += 1
        found = store / f"{stem}-{count}.json"
    return found
