"""Read records from files of JSON lines; the one rule for damaged lines is `record_of`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

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
