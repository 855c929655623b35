"""The recorded results of the cells, and their table in docs/engines.md."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.engine import ROOT
from tests.engines.cells import CELLS, NOT_RUN

FILE: Final = Path(__file__).with_name("results.json")
PAGE: Final = ROOT / "docs/engines.md"
BEGIN: Final = "<!-- begin: written by `make engines` -->\n"
END: Final = "<!-- end -->\n"
HEADER: Final = """\
| Engine | Compose | buildx | image store | GPUs by CDI | training | date | tests |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Result:
    """What a cell gave.

    Attributes:
        engine: The engine's version.
        compose: The version of compose.
        buildx: The version of buildx, or `none`.
        date: The day, as 2026-11-24.
        passed: The number of tests that passed.
        failed: The names of the tests that failed.
        skipped: The number of tests that were skipped.
    """

    engine: str
    compose: str
    buildx: str
    date: str
    passed: int
    failed: tuple[str, ...]
    skipped: int

    @property
    def outcome(self) -> str:
        """The last column of its row."""
        counts = {"passed": self.passed, "failed": len(self.failed), "skipped": self.skipped}
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def read() -> dict[str, Result]:
    """The recorded results, by the cell's name."""
    if not FILE.exists():
        return {}
    found = json.loads(FILE.read_text())
    return {
        name: Result(**{**each, "failed": tuple(each["failed"])}) for name, each in found.items()
    }


def record(name: str, result: Result) -> None:
    """Record a result, and write the table again."""
    results = {**read(), name: result}
    kept = {each.name: asdict(results[each.name]) for each in CELLS if each.name in results}
    FILE.write_text(json.dumps(kept, indent=2) + "\n")
    PAGE.write_text(with_table(PAGE.read_text()))


def with_table(page: str) -> str:
    """The page with the table of the recorded results."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def table() -> str:
    """The table of all cells, and under it what failed or was not run."""
    results = read()
    rows, notes = [], []
    for cell in CELLS:
        options = (cell.store, _yes(cell.cdi), _yes(cell.trains))
        if (result := results.get(cell.name)) is None:
            rows.append((f"Debian {cell.suite}", cell.compose, "", *options, "", "not run"))
            continue
        row = (result.engine, result.compose, result.buildx, *options, result.date)
        rows.append((*row, result.outcome))
        client = f"Engine {result.engine} with Compose {result.compose}"
        notes += [
            f"{client} and the store {cell.store}: `{name}` failed." for name in result.failed
        ]
    for engine, compose, why in NOT_RUN:
        rows.append((engine, compose, "", "", "", "", "", "not run"))
        notes.append(f"Engine {engine} with Compose {compose} was not run: {why}.")
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return HEADER + "\n".join([*lines, "", *(f"- {note}" for note in notes), ""])


def _yes(value: bool) -> str:
    return "yes" if value else "no"
