"""Read records from files of JSON lines; `record_of` decides which lines are damaged.

The results of an experiment are read from records, and compared with their limits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, isfinite, isnan
from pathlib import Path
from typing import Any, Final, TypeGuard

from lab.base.text import MAX_LINE_BYTES
from lab.base.units import is_in_range

STEPS: Final = frozenset({"step", "epoch"})
"""The kinds of records that a task writes after a training step."""


Times = tuple[float, float]
"""The earliest and the latest time of a run, in seconds since the epoch."""

EVER: Final[Times] = (-inf, inf)
_MAX_BYTES: Final = 4 * MAX_LINE_BYTES  # of a record: an agent writes a shorter line as JSON


def record_of(line: bytes, times: Times = EVER) -> dict[str, Any] | None:
    """Return the record of a line; None if it is not a JSON object, or its kind is not a text.

    Drop a time outside the run: a program may print anything.
    """
    try:
        # Python's reader accepts NaN and Infinity, which Python's writer writes.
        record = json.loads(line) if len(line) <= _MAX_BYTES else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str | None):
        return None
    if not (is_time(time := record.get("time_unix")) and times[0] <= time <= times[1]):
        record.pop("time_unix", None)
    return record


def read_records(path: Path, times: Times = EVER) -> Iterator[dict[str, Any]]:
    """Yield the records of a file; none if it is missing, or not a regular file.

    Raises:
        OSError: The file cannot be read.
    """
    return _records(lines_of(path), times)


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a records file, up to its last line end; too long ones are cut.

    Raises:
        OSError: The file cannot be read.
    """
    if path.is_symlink() or not path.is_file():
        return
    with path.open("rb") as file:
        while line := file.readline(_MAX_BYTES + 1):
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(_MAX_BYTES + 1)
            if rest:
                yield line


class LineReader:
    """Splits the bytes of a records file into records; a chunk may end anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes, times: Times = EVER) -> Iterator[dict[str, Any]]:
        """Return the records that these bytes complete; skip lines that are not records."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()[: _MAX_BYTES + 1]
        return _records(lines, times)


def _records(lines: Iterable[bytes], times: Times) -> Iterator[dict[str, Any]]:
    records = (record_of(line, times) for line in lines)
    return (record for record in records if record is not None)


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
    results: list[Result] = []
    for path in tasks:
        newest: dict[str, Result] = {}
        for record in read_records(path):
            if record.get("kind") == "result" and (result := result_of(record)) is not None:
                newest[result.name] = result
        results += newest.values()
    bad = [result.name for result in results if not result.is_as_expected]
    names = {result.name for result in results}
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
