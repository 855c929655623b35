"""The runs so far, a line of JSON each, and what they came to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.torture.case import Case
from tests.torture.judging import GOOD, Judgement

Row = Mapping[str, Any]
"""The properties of a case and of its result."""


def row_of(case: Case, judgement: Judgement, **more: Any) -> Row:
    """A case and its result; `more`: its date, sources, seconds."""
    found = asdict(judgement)
    return {**more, **asdict(case), **found.pop("outcome"), **found}


def read(file: Path) -> list[Row]:
    """All rows so far, oldest first."""
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def keep(file: Path, row: Row) -> None:
    """Keep one more."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(row) + "\n")


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """The findings, and how many runs had each verdict."""
    for row in rows:
        if row["verdict"] not in GOOD:
            yield f"{row['verdict']}: seed {row['seed']}: {'; '.join(row['details'])}"
    counts = Counter(row["verdict"] for row in rows)
    yield f"{len(rows)} runs: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}"
