"""What a source says, what was found here, and the verdict: a file of `lab reproduce`, read."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from lab.errors import InputError
from lab.task.text import short


class Band(msgspec.Struct, frozen=True):
    """Where a value has to lie; an end that is None is open."""

    low: float | None = None
    high: float | None = None


class Observed(Band, frozen=True):
    """What was found here.

    Attributes:
        mean: The mean over runs; `low` and `high` are the ends of its interval, or None.
        n: Over how many runs.
    """

    mean: float | None = None
    n: int | None = None


class ClaimResult(msgspec.Struct, frozen=True):
    """One claim of a source, judged.

    Attributes:
        claim: Its name.
        verdict: `PASS`, `OUTSIDE_BAND`, `TOO_GOOD`, `INSUFFICIENT_RUNS` or `NOT_COMPARABLE`.
        words: The claim in words.
        source_value: What the source says: a number, or its words.
        ours: What was found here.
        unit: Of these figures.
        band: Where the figure has to lie.
        why: The reason of the verdict.
        group: What the claim counts as: `independent`, `fitted`, `own` or `uncounted`.
        source: Who states it.
        where: The place in the source.
        note: A limit that a reader must know.
    """

    claim: str
    verdict: str
    words: str = ""
    source_value: float | str | None = None
    ours: Observed | None = None
    unit: str = ""
    band: Band | None = None
    why: str = ""
    group: str = ""
    source: str = ""
    where: str = ""
    note: str = ""


class ClaimResults(msgspec.Struct, frozen=True):
    """A whole file.

    Attributes:
        name: What was reproduced: `book-async`.
        verdicts: One for each claim.
        source: What is reproduced, in words.
        runs: The ids of the runs that were judged.
    """

    name: str
    verdicts: list[ClaimResult]
    source: str = ""
    runs: list[str] = []

    @property
    def limits(self) -> list[str]:
        """A line for each limit: the first claim that has it, how many more do, and the limit."""
        limits: dict[str, list[str]] = {}
        for each in self.verdicts:
            if each.note:
                limits.setdefault(each.note, []).append(each.words or each.claim)
        return [
            f"{claims[0]}{f' and {len(claims) - 1} more' * (len(claims) > 1)}: {limit}"
            for limit, claims in limits.items()
        ]


def read_verdicts(path: Path) -> ClaimResults:
    """Read a file of verdicts.

    Raises:
        InputError: It cannot be read, or holds something else.
    """
    fix = "give a reproduce-….json that `lab reproduce` wrote"
    try:
        # Python's reader knows NaN, which Python's writer writes.
        return msgspec.convert(json.loads(path.read_bytes()), ClaimResults)
    except OSError as error:
        reason = error.strerror or "not a file"
        raise InputError(
            f"--verdicts: {short(str(path))} cannot be read ({reason})", fix
        ) from error
    except (ValueError, RecursionError) as error:
        what = f"--verdicts: {short(str(path))} holds no verdicts"
        raise InputError(what, fix) from error
