"""The results of an experiment: read them from records, and compare them with their limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, TypeGuard

from lab.records import is_in_range
from lab.records.reader import read_records


@dataclass(frozen=True, slots=True)
class Result:
    """One result of an experiment, with its limits.

    Attributes:
        name: The program's name for the result.
        value: The measured value.
        low: The lowest expected value, or None.
        high: The highest expected value, or None.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_as_expected(self) -> bool:
        """Whether the value is within the limits; NaN never is."""
        above = self.low is None or self.value >= self.low
        return above and (self.high is None or self.value <= self.high) and not isnan(self.value)


def result_of(record: Mapping[str, Any]) -> Result | None:
    """Return the result in a record; None if the record has no valid result."""
    name, value = record.get("name"), record.get("value")
    low, high = record.get("low"), record.get("high")
    if not isinstance(name, str) or not is_number(value):
        return None
    return Result(name, value, low if is_number(low) else None, high if is_number(high) else None)


def unexpected(tasks: Iterable[Path], wanted: Iterable[str]) -> list[str]:
    """Return the names of results outside their limits, and of missing results.

    Args:
        tasks: The record files, one per task. Of several results with one name in a file, the
            newest counts.
        wanted: The names of the required results.

    Raises:
        OSError: An existing file cannot be read.
    """
    found: list[Result] = []
    for path in tasks:
        newest: dict[str, Result] = {}
        for record in read_records(path):
            if record.get("kind") == "result" and (result := result_of(record)) is not None:
                newest[result.name] = result
        found += newest.values()
    bad = [result.name for result in found if not result.is_as_expected]
    names = {result.name for result in found}
    return list(dict.fromkeys([*bad, *(name for name in wanted if name not in names)]))


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a record's field is a number; True and False are not numbers."""
    return isinstance(value, float) or is_whole(value)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a record's field is a whole number that fits into 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and is_in_range(value)
