"""The recorded results of the cells, a row of the table in docs/reference/engines.md each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.engines.cells import CELLS
from tests.support.engine import ROOT

FILE: Final = Path(__file__).with_name("results.json")
PAGE: Final = ROOT / "docs/reference/engines.md"
BEGIN: Final = "<!-- begin: written by `make engines` -->\n"
END: Final = "<!-- end -->\n"

Row = Mapping[str, str]
"""The name of a column to its text."""


def read(file: Path = FILE) -> dict[str, Row]:
    return dict(json.loads(file.read_text("utf-8")))


def record(name: str, row: Row, file: Path = FILE, page: Path = PAGE) -> None:
    """Record a row, and write the table again."""
    rows = {**read(file), name: row}
    kept = {each.name: rows[each.name] for each in CELLS if each.name in rows}
    file.write_text(json.dumps(kept, indent=2) + "\n")
    page.write_text(with_table(page.read_text("utf-8"), kept))


def with_table(page: str, rows: Mapping[str, Row]) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    columns = list(next(iter(rows.values())))
    cells = [columns, ["---"] * len(columns), *([*row.values()] for row in rows.values())]
    table = "".join(f"| {' | '.join(each)} |\n" for each in cells)
    return f"{before}{BEGIN}{table}{END}{after}"
