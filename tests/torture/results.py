"""The runs so far, a line of JSON each, and what they came to."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.torture.case import Case
from tests.torture.judging import GOOD, Judgement, Verdict

Row = Mapping[str, Any]
"""The properties of a case and of its result."""


def row_of(case: Case, judgement: Judgement, **more: Any) -> Row:
    """A case and its result; `more`: its campaign, date, sources, seconds."""
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


def newest(rows: Iterable[Row]) -> list[Row]:
    """The last row of each case, in the order of their seeds: a case may have run again."""
    last = {(row["campaign"], row["seed"]): row for row in rows}
    return [last[key] for key in sorted(last)]


def seeds_to_run(
    rows: Sequence[Row], campaign: str, seeds: Iterable[int], *, again: bool
) -> Iterator[int]:
    """Seeds without a row, where a stopped harness resumes; or those whose newest row is bad."""
    of_it = [row for row in newest(rows) if row["campaign"] == campaign]
    if again:
        return (row["seed"] for row in of_it if row["verdict"] not in GOOD)
    seen = {row["seed"] for row in of_it}
    return (seed for seed in seeds if seed not in seen)


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """How often each end came, the findings, and how many runs were bad in which way."""
    lines = sorted((" ".join(_end(row)), row["seed"], row["seconds"]) for row in rows)
    for end, same in groupby(lines, key=lambda line: line[0]):
        seeds, seconds = zip(*((seed, seconds) for _, seed, seconds in same), strict=True)
        took = [each for each in seconds if each is not None]
        times = f", {statistics.median(took):.1f} s, at most {max(took):.1f} s" if took else ""
        yield f"{len(seeds):4} {end}{times}: seeds {', '.join(map(str, seeds))}"
    for row in rows:
        if row["verdict"] not in GOOD:
            yield f"{row['verdict']}: seed {row['seed']}: {'; '.join(row['details'])}"
    found = [row["verdict"] for row in rows]
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in Verdict)
    yield f"{len(rows)} runs: {counts}"


def _end(row: Row) -> Iterator[str]:
    kind = row["replicas"] and f"{row['replicas']} of {row['workers']} gradients"
    yield from filter(None, (row["campaign"], row["harm"], kind, row["fault"], row["policy"]))
    yield f"→ {row['state']} ({row['cause']})" if row["cause"] else f"→ {row['state']}"
    if row["verdict"] != Verdict.OK:
        yield row["verdict"]
