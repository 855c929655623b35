"""What an experiment finds: from records to numbers, each with the place where it has to lie."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, TypeGuard


@dataclass(frozen=True, slots=True)
class Result:
    """One thing that an experiment has found, and where it has to lie.

    Attributes:
        name: What it is, in the program's words.
        value: What was found.
        low: The least that it may be, or None.
        high: The most that it may be, or None.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_as_expected(self) -> bool:
        """Whether it lies where it has to; what is no number lies nowhere."""
        above = self.low is None or self.value >= self.low
        return above and (self.high is None or self.value <= self.high) and not isnan(self.value)


def result_of(record: Mapping[str, Any]) -> Result | None:
    """The result that a record tells; None where it tells none that can be read."""
    name, value = record.get("name"), record.get("value")
    low, high = record.get("low"), record.get("high")
    if not isinstance(name, str) or not is_number(value):
        return None
    return Result(name, value, low if is_number(low) else None, high if is_number(high) else None)


def unexpected(tasks: Iterable[Path], wanted: Iterable[str]) -> list[str]:
    """Names of what does not lie where it has to, and of what nobody has found.

    Args:
        tasks: The files of records, one for each task; of several results of a name in one file,
            the newest counts.
        wanted: What is to be found.

    Raises:
        OSError: A file that is there cannot be read.
    """
    found: list[Result] = []
    for path in tasks:
        newest: dict[str, Result] = {}
        for record in records_of(path):
            if record.get("kind") == "result" and (result := result_of(record)) is not None:
                newest[result.name] = result
        found += newest.values()
    bad = [result.name for result in found if not result.is_as_expected]
    names = {result.name for result in found}
    return list(dict.fromkeys([*bad, *(name for name in wanted if name not in names)]))


def records_of(path: Path) -> Iterable[Mapping[str, Any]]:
    """The records of one task's file; lines that are no record are left out."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a record's field is a number; True and False are none."""
    return isinstance(value, float) or is_whole(value)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a field holds what a record may: a whole number that fits into 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
