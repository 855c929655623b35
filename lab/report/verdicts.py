"""Reads a file of `lab reproduce`: the claims of a source and their results."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from lab.errors import InputError
from lab.task.text import short


class Band(msgspec.Struct, frozen=True):
    """The range of a value; an end that is None is open."""

    low: float | None = None
    high: float | None = None


class Observed(Band, frozen=True):
    """The observed value.

    Attributes:
        mean: The mean over runs; `low` and `high` are the ends of its interval, or None.
        n: The number of runs.
    """

    mean: float | None = None
    n: int | None = None


class ClaimResult(msgspec.Struct, frozen=True):
    """The result of one claim.

    Attributes:
        claim: The name of the claim.
        verdict: `PASS`, `OUTSIDE_BAND`, `TOO_GOOD`, `INSUFFICIENT_RUNS` or `NOT_COMPARABLE`.
        words: The claim as text.
        source_value: The value of the source: a number or a text.
        ours: The observed value.
        unit: The unit of these values.
        band: The range that the observed value must be in.
        why: The reason of the verdict.
        group: The group of the claim: `independent`, `fitted`, `own` or `uncounted`.
        source: The source of the claim.
        where: The location in the source.
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
    """The content of a file.

    Attributes:
        name: The name of the reproduction: `book-async`.
        verdicts: The result of each claim.
        source: The reproduced source, as text.
        runs: The ids of the evaluated runs.
    """

    name: str
    verdicts: list[ClaimResult]
    source: str = ""
    runs: list[str] = []

    @property
    def limits(self) -> list[str]:
        """A line for each limit: its first claim, the number of further claims, and the limit."""
        limits: dict[str, list[str]] = {}
        for each in self.verdicts:
            if each.note:
                limits.setdefault(each.note, []).append(each.words or each.claim)
        return [
            f"{claims[0]}{f' and {len(claims) - 1} more' * (len(claims) > 1)}: {limit}"
            for limit, claims in limits.items()
        ]


def read_verdicts(path: Path) -> ClaimResults:
    """Read a file with results of claims.

    Raises:
        InputError: It cannot be read, or has another content.
    """
    fix = "give a reproduce-….json of `lab reproduce`"
    try:
        # Python's json reads NaN, which its writer writes; msgspec does not.
        return msgspec.convert(json.loads(path.read_bytes()), ClaimResults)
    except OSError as error:
        reason = error.strerror or "not a file"
        raise InputError(
            f"--verdicts: {short(str(path))} cannot be read ({reason})", fix
        ) from error
    except (ValueError, RecursionError) as error:
        what = f"--verdicts: {short(str(path))} has no verdicts"
        raise InputError(what, fix) from error
