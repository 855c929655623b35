"""Read records from files of JSON lines; the one rule for damaged lines is `record_of`.

The results of an experiment are read from records, and compared with their limits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, isnan
from pathlib import Path
from typing import Any, Final, TypeGuard

from lab.records import is_in_range

STEPS: Final = frozenset({"step", "epoch"})
"""The kinds of records that a task writes after a training step."""


def record_of(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line; None if it is not a JSON object, or its kind is not a text."""
    try:
        # Python's reader accepts NaN and Infinity, which Python's writer writes.
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_record = isinstance(record, dict) and isinstance(record.get("kind"), str | None)
    return record if is_record else None


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file, up to its last line end; none if it is missing.

    Raises:
        OSError: The file cannot be read.
    """
    if path.is_file():
        with path.open("rb") as file:
            yield from _records(line for line in file if line.endswith(b"\n"))


class LineReader:
    """Splits the bytes of a records file into records; a chunk may end anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Return the records that these bytes complete; skip lines that are not records."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        return _records(lines)


def _records(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    return (record for record in map(record_of, lines) if record is not None)


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


def is_time(value: object) -> TypeGuard[float]:
    """Whether a record's field is a finite number; a broken program may write NaN."""
    return is_number(value) and isfinite(value)
