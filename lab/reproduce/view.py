"""Show the results of claims: as tables of at most 80 columns, and as a JSON file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from lab.formatting import band, compared, mean_of_runs
from lab.reproduce.claims import GROUPS, Group, Source
from lab.reproduce.evaluate import ClaimResult, ClaimStatus
from lab.run.tables import Cell, table_of
from lab.task.text import visible, wrapped

_STYLES: Final = {
    ClaimStatus.PASS: "green",
    ClaimStatus.OUTSIDE_BAND: "bold red",
    ClaimStatus.TOO_GOOD: "bold red",
    ClaimStatus.INSUFFICIENT_RUNS: "yellow",
    ClaimStatus.NOT_COMPARABLE: "dim",
}
_CLAIM: Final = 26


def verdicts_table(verdicts: Sequence[ClaimResult]) -> Table:
    """A row for each claim: the source's value, ours with its interval, the band, the verdict.

    The place in the source is below the first of its claims.
    """
    heads = ["claim", ">source", ">ours, 95%", ">band of ours", "verdict"]
    places = [f"{each.source}: {each.where}" for each in verdicts]
    shown = ["" if n and place == places[n - 1] else place for n, place in enumerate(places)]
    return table_of(heads, (_row(*pair) for pair in zip(verdicts, shown, strict=True)))


def grouped(verdicts: Sequence[ClaimResult]) -> dict[Group, list[ClaimResult]]:
    """The results by group; empty groups are left out."""
    found = {group: [each for each in verdicts if each.group == group] for group in GROUPS}
    return {group: members for group, members in found.items() if members}


def notes(verdicts: Sequence[ClaimResult]) -> list[str]:
    """A line for each note, with its claims: `loss.worker-0.epoch-9 and 14 more: weak: …`."""
    found: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.note:
            found.setdefault(verdict.note, []).append(verdict.claim)
    return [f"{_several(claims)}: {note}" for note, claims in found.items()]


def _several(claims: Sequence[str]) -> str:
    return f"{claims[0]}{f' and {len(claims) - 1} more' * (len(claims) > 1)}"


def reasons(verdicts: Sequence[ClaimResult]) -> list[str]:
    """A line for each reason for which claims do not pass."""
    groups: dict[tuple[ClaimStatus, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.verdict is not ClaimStatus.PASS:
            groups.setdefault((verdict.verdict, verdict.why), []).append(verdict.claim)
    return [f"{_several(claims)}: {status}: {why}" for (status, why), claims in groups.items()]


def counts(verdicts: Sequence[ClaimResult]) -> str:
    """The counts of each verdict: `48 PASS, 2 OUTSIDE_BAND`."""
    found = Counter(verdict.verdict for verdict in verdicts)
    return ", ".join(f"{found[status]} {status}" for status in ClaimStatus if found[status])


def _row(verdict: ClaimResult, place: str) -> list[Cell]:
    status = verdict.verdict
    claim = Text("\n".join(visible(line) for line in wrapped(verdict.words, _CLAIM)))
    if place:
        claim.append(
            "\n" + "\n".join(visible(line) for line in wrapped(place, _CLAIM)), style="dim"
        )
    return [
        claim,
        "" if verdict.source_value is None else compared(verdict.source_value),
        _ours(verdict),
        "" if verdict.band is None else band(verdict.band.low, verdict.band.high),
        # One part a line: the longest verdict would take a fifth of the table's width.
        Text("_\n".join(status.split("_")), style=_STYLES[status]),
    ]


def _ours(verdict: ClaimResult) -> Text:
    ours = verdict.ours
    if ours.mean is None:
        return Text()
    # A number without another one to compare with has its unit.
    alone = verdict.source_value is None and verdict.band is None and verdict.unit
    unit = f"\n{visible(verdict.unit)}" if alone else ""
    return Text(mean_of_runs(ours.mean, ours.low, ours.high, ours.n) + unit)


def as_json(source: Source, verdicts: Sequence[ClaimResult], runs: Sequence[str]) -> dict[str, Any]:
    """All results, the counts of verdicts in each group, and the ids of the runs."""
    counts = {group: Counter(v.verdict for v in verdicts if v.group == group) for group in GROUPS}
    return {
        "name": source.name,
        "source": source.title,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "counts": {group: dict(found) for group, found in counts.items()},
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "runs": list(runs),
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
