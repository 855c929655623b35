"""Reads a file of `lab reproduce`: the claims of a source and their results."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from lab.errors import InputError
from lab.text import short


class Interval(msgspec.Struct, frozen=True):
    """An interval; an end that is None is not known."""

    low: float | None = None
    high: float | None = None


class ClaimResult(msgspec.Struct, frozen=True):
    """The result of one claim; `lab.reproduce.verdicts.Result` describes the fields."""

    claim: str
    verdict: str
    text: str = ""
    kind: str = ""
    where: str = ""
    printed: float | None = None
    ours: float | None = None
    interval: Interval | None = None
    unit: str = ""
    why: str = ""


class ClaimResults(msgspec.Struct, frozen=True):
    """The content of a file.

    Attributes:
        name: The name of the reproduction: `book-async`.
        claims: The result of each claim.
        source: The reproduced source, as text.
        summary: The counts of the verdicts, as text.
        runs: The ids of the evaluated runs, by role and seed.
        excluded: The ids of the excluded runs, each with its reason.
    """

    name: str
    claims: list[ClaimResult]
    source: str = ""
    summary: str = ""
    runs: dict[str, dict[str, str]] = {}
    excluded: dict[str, str] = {}

    @property
    def run_ids(self) -> set[str]:
        """The ids of the evaluated runs."""
        return {run_id for by_seed in self.runs.values() for run_id in by_seed.values()}


def read_verdicts(path: Path) -> ClaimResults:
    """Read a file with results of claims.

    Raises:
        InputError: It cannot be read, or has another content.
    """
    fix = "give a reproduce-….json of `lab reproduce`"
    try:
        # Python's json reads NaN, which other writers may write; msgspec does not.
        return msgspec.convert(json.loads(path.read_bytes()), ClaimResults)
    except OSError as error:
        reason = error.strerror or "not a file"
        raise InputError(
            f"--verdicts: {short(str(path))} cannot be read ({reason})", fix
        ) from error
    except (ValueError, RecursionError) as error:
        what = f"--verdicts: {short(str(path))} has no verdicts"
        raise InputError(what, fix) from error
