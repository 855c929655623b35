"""The verdicts: as tables that fit into 80 columns, one for each group of claims, and as a file."""

from __future__ import annotations

import textwrap
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
from lab.task.text import visible

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

    The place in the source stands below the first of the claims that it makes.
    """
    heads = ["claim", ">source", ">ours, 95%", ">band of ours", "verdict"]
    places = [f"{each.source}: {each.where}" for each in verdicts]
    shown = ["" if n and place == places[n - 1] else place for n, place in enumerate(places)]
    return table_of(heads, (_row(*pair) for pair in zip(verdicts, shown, strict=True)))


def grouped(verdicts: Sequence[ClaimResult]) -> dict[Group, list[ClaimResult]]:
    """The verdicts by what they count as; groups without a verdict are left out."""
    found = {group: [each for each in verdicts if each.group == group] for group in GROUPS}
    return {group: members for group, members in found.items() if members}


def notes(verdicts: Sequence[ClaimResult]) -> list[str]:
    """A line for each limit that claims have: `loss.worker-0.epoch-9 and 14 more: weak: …`."""
    found: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.note:
            found.setdefault(verdict.note, []).append(verdict.claim)
    return [f"{_several(claims)}: {note}" for note, claims in found.items()]


def _several(claims: Sequence[str]) -> str:
    return f"{claims[0]}{f' and {len(claims) - 1} more' * (len(claims) > 1)}"


def reasons(verdicts: Sequence[ClaimResult]) -> list[str]:
    """A line for each reason why claims do not pass."""
    groups: dict[tuple[ClaimStatus, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.verdict is not ClaimStatus.PASS:
            groups.setdefault((verdict.verdict, verdict.why), []).append(verdict.claim)
    return [f"{_several(claims)}: {status}: {why}" for (status, why), claims in groups.items()]


def counts(verdicts: Sequence[ClaimResult]) -> str:
    """`48 PASS, 2 OUTSIDE_BAND`."""
    found = Counter(verdict.verdict for verdict in verdicts)
    return ", ".join(f"{found[status]} {status}" for status in ClaimStatus if found[status])


def _row(verdict: ClaimResult, place: str) -> list[Cell]:
    status = verdict.verdict
    claim = Text("\n".join(visible(line) for line in _wrapped(verdict.words)))
    if place:
        claim.append("\n" + "\n".join(visible(line) for line in _wrapped(place)), style="dim")
    return [
        claim,
        "" if verdict.source_value is None else compared(verdict.source_value),
        _ours(verdict),
        "" if verdict.band is None else band(verdict.band.low, verdict.band.high),
        # Its parts below each other: whole, the longest would be a fifth of the table.
        Text("_\n".join(status.split("_")), style=_STYLES[status]),
    ]


def _wrapped(arguments: str) -> list[str]:
    """Lines that the first column has room for."""
    return textwrap.wrap(arguments, _CLAIM, break_long_words=False, break_on_hyphens=False) or [""]


def _ours(verdict: ClaimResult) -> Text:
    ours = verdict.ours
    if ours.mean is None:
        return Text()
    # A number that is compared with no other one says what it is.
    alone = verdict.source_value is None and verdict.band is None and verdict.unit
    unit = f"\n{visible(verdict.unit)}" if alone else ""
    return Text(mean_of_runs(ours.mean, ours.low, ours.high, ours.n) + unit)


def as_json(source: Source, verdicts: Sequence[ClaimResult], runs: Sequence[str]) -> dict[str, Any]:
    """All verdicts, how many there are of each in each group, and the runs that they are about."""
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
    """A file that is not there yet: `reproduce-book-async-20261122-0810.json`."""
    stem = f"reproduce-{source.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    found = store / f"{stem}.json"
    count = 1
    while found.exists():
        count += 1
        found = store / f"{stem}-{count}.json"
    return found
