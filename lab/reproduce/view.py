"""The verdicts as tables that fit into 80 columns, one for each group of claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from lab.reproduce.claims import GROUPS, Group
from lab.reproduce.judge import Verdict, Word
from lab.reproduce.numbers import band, compared, mean_of_runs
from lab.run.tables import Cell, table_of
from lab.task.text import visible

_STYLES: Final = {
    Word.PASS: "green",
    Word.OUTSIDE_BAND: "bold red",
    Word.TOO_GOOD: "bold red",
    Word.INSUFFICIENT_RUNS: "yellow",
    Word.NOT_COMPARABLE: "dim",
}
_CLAIM: Final = 26


def verdicts_table(verdicts: Sequence[Verdict]) -> Table:
    """A row for each claim: the source's value, ours with its interval, the band, the verdict.

    The place in the source stands below the first of the claims that it makes.
    """
    heads = ["claim", ">source", ">ours, 95%", ">band of ours", "verdict"]
    places = [f"{each.source}: {each.where}" for each in verdicts]
    shown = ["" if n and place == places[n - 1] else place for n, place in enumerate(places)]
    return table_of(heads, (_row(*pair) for pair in zip(verdicts, shown, strict=True)))


def grouped(verdicts: Sequence[Verdict]) -> dict[Group, list[Verdict]]:
    """The verdicts by what they count as; groups without a verdict are left out."""
    found = {group: [each for each in verdicts if each.group == group] for group in GROUPS}
    return {group: members for group, members in found.items() if members}


def notes(verdicts: Sequence[Verdict]) -> list[str]:
    """A line for each limit that claims have: `loss.worker-0.epoch-9 and 14 more: weak: …`."""
    found: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.note:
            found.setdefault(verdict.note, []).append(verdict.claim)
    return [f"{_several(claims)}: {note}" for note, claims in found.items()]


def _several(claims: Sequence[str]) -> str:
    return f"{claims[0]}{f' and {len(claims) - 1} more' * (len(claims) > 1)}"


def reasons(verdicts: Sequence[Verdict]) -> list[str]:
    """A line for each reason why claims do not pass."""
    groups: dict[tuple[Word, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.verdict is not Word.PASS:
            groups.setdefault((verdict.verdict, verdict.why), []).append(verdict.claim)
    return [f"{_several(claims)}: {word}: {why}" for (word, why), claims in groups.items()]


def counts(verdicts: Sequence[Verdict]) -> str:
    """`48 PASS, 2 OUTSIDE_BAND`."""
    found = Counter(verdict.verdict for verdict in verdicts)
    return ", ".join(f"{found[word]} {word}" for word in Word if found[word])


def _row(verdict: Verdict, place: str) -> list[Cell]:
    word = verdict.verdict
    claim = Text("\n".join(visible(line) for line in _wrapped(verdict.words)))
    if place:
        claim.append("\n" + "\n".join(visible(line) for line in _wrapped(place)), style="dim")
    return [
        claim,
        "" if verdict.source_value is None else compared(verdict.source_value),
        _ours(verdict),
        "" if verdict.band is None else band(verdict.band.low, verdict.band.high),
        # Its parts below each other: whole, the longest would be a fifth of the table.
        Text("_\n".join(word.split("_")), style=_STYLES[word]),
    ]


def _wrapped(words: str) -> list[str]:
    """Lines that the first column has room for."""
    lines = [""]
    for word in words.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _CLAIM:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def _ours(verdict: Verdict) -> Text:
    ours = verdict.ours
    if ours.mean is None:
        return Text()
    # A number that is compared with no other one says what it is.
    alone = verdict.source_value is None and verdict.band is None and verdict.unit
    unit = f"\n{visible(verdict.unit)}" if alone else ""
    return Text(mean_of_runs(ours.mean, ours.low, ours.high, ours.n) + unit)
