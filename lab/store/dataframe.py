"""The records of a run as a data frame: one row for each record.

Records that follow the grammar are decoded a block of lines at a time. If a block has another
line, it is read again line by line. NaN is then valid, a field of the wrong type is left empty, and
a line that is not a record is skipped. The last two are reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from lab.formatting import counted
from lab.log import LOG
from lab.records import FIELDS
from lab.records.reader import STEPS, is_number, is_whole, record_of
from lab.store.directory import RunDir

DAMAGED: Final = "damaged"
"""The key in a frame's `attrs`: a text for each damaged line, with its file and line number."""

_CATEGORIES: Final = frozenset({"kind", "run", "job_name", "status"})
"""Fields with few different texts."""

_TASK: Final = re.compile(r"[a-z]+-[0-9]+")
_BLOCK: Final = 1 << 20  # bytes that are decoded at once
_MISSING: Final = -(2**63)
"""Represents a missing whole number until the frame is made; no record has this value."""

_Whole = Annotated[int, msgspec.Meta(gt=_MISSING, le=2**63 - 1)]
_TYPES: Final[dict[Any, tuple[Any, Any]]] = {
    int: (_Whole, _MISSING),
    float: (float, math.nan),
    str: (str | None, None),
}
_Row: Final = msgspec.defstruct(
    "_Row",
    [(name, *_TYPES[kind]) for name, kind in FIELDS.items()],
    gc=False,  # rows refer to no other objects, and there may be a million rows
)
_VALUES: Final = attrgetter(*FIELDS)

_Columns = dict[str, Any]  # name to an array with one element for each record


def records_frame(run: RunDir, tasks: Collection[str] | None = None) -> pd.DataFrame:
    """Return all records of a run, as `read_records` does, and warn if lines are damaged.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    frame = read_records(run, tasks)
    if damaged := frame.attrs[DAMAGED]:
        count = counted(len(damaged), "damaged line")
        LOG.warning(f"run {run.run_id} has {count} in its records: {damaged[0]}")
    return frame


def read_records(run: RunDir, tasks: Collection[str] | None = None) -> pd.DataFrame:
    """Return all records of a run, ordered by task and by their order in the task's file.

    Args:
        run: The run. If it is under way, half a line at the end of a file is ignored.
        tasks: Only these tasks; None: all.

    Returns:
        A row for each record: `task`, and the fields of `lab.records.FIELDS`. Whole numbers are
        `Int64` with NA for a missing one, other numbers `float64` with NaN. `attrs["damaged"]`
        names each line that could not be read, or only in part.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    damaged: list[str] = []
    tasks = [tasks] if isinstance(tasks, str) else tasks
    names = [task for task in recorded_tasks(run) if tasks is None or task in tasks]
    parts = [part for task in names for part in _parts(run.records(task), task, damaged)]
    frame = pd.DataFrame(_together(parts), copy=False)
    frame.attrs[DAMAGED] = tuple(damaged)
    return frame


def steps_frame(run: RunDir, tasks: Collection[str] | None = None) -> pd.DataFrame:
    """Return only the records of kind `step` and `epoch`.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    return steps_of(records_frame(run, tasks))


def steps_of(records: pd.DataFrame) -> pd.DataFrame:
    """Return only the rows of kind `step` and `epoch`."""
    return records[records["kind"].isin(STEPS)].reset_index(drop=True)


def recorded_tasks(run: RunDir) -> list[str]:
    """Return the tasks that have records, in the cluster's order, then any others.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    found = {path.stem for path in (run.path / "tasks").glob("*.jsonl") if path.is_file()}
    known = [name for name in run.read().task_names() if name in found]
    others = sorted(name for name in found.difference(known) if _TASK.fullmatch(name))
    return [*filter(_TASK.fullmatch, known), *others]


def _parts(path: Path, task: str, damaged: list[str]) -> Iterator[_Columns]:
    """Yield the columns of a task's file, block by block."""
    decoder = msgspec.json.Decoder(_Row)
    first = 1
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            block += file.readline()
            block = block[: block.rfind(b"\n") + 1]
            lines = block.count(b"\n")
            rows = _decoded(decoder, block, lines)
            if rows is None:
                rows = list(_one_by_one(decoder, block, f"tasks/{path.name}", first, damaged))
            first += lines
            if rows:
                yield _columns(task, rows)


def _decoded(decoder: msgspec.json.Decoder[Any], block: bytes, lines: int) -> list[Any] | None:
    """Return the rows of a block; None if a line of it is not a valid record."""
    try:
        rows = decoder.decode_lines(block)
    except (ValueError, RecursionError):
        return None
    return rows if len(rows) == lines else None


def _one_by_one(
    decoder: msgspec.json.Decoder[Any], block: bytes, file: str, first: int, damaged: list[str]
) -> Iterator[Any]:
    for number, line in enumerate(block.split(b"\n")[:-1], first):
        try:
            yield decoder.decode(line)
        except (ValueError, RecursionError):
            row, fault = _lenient(line)
            if fault:
                damaged.append(f"{file}:{number}: {fault}")
            if row is not None:
                yield row


def _lenient(line: bytes) -> tuple[Any, str]:
    """Return the row of a line that msgspec refused, as far as it is readable, and the error."""
    record = record_of(line)
    if record is None:
        return None, "not a record"
    good = {name: _value(name, record[name]) for name in FIELDS if record.get(name) is not None}
    bad = [name for name, value in good.items() if value is None]
    row = _Row(**{name: value for name, value in good.items() if value is not None})
    return row, f"wrong type of {', '.join(bad)}" if bad else ""


def _value(name: str, raw: object) -> int | float | str | None:
    """Return the value of a field; None if it has the wrong type."""
    if FIELDS[name] is str:
        # Half a surrogate pair cannot be encoded, so it is replaced.
        return raw.encode(errors="replace").decode() if isinstance(raw, str) else None
    if FIELDS[name] is float:
        return float(raw) if is_number(raw) else None
    return raw if is_whole(raw) and raw != _MISSING else None


def _columns(task: str, rows: Sequence[Any]) -> _Columns:
    """Return a column for each field, and one for the task."""
    names = pd.Index([task], dtype="str")
    columns: _Columns = {"task": pd.Categorical.from_codes(np.zeros(len(rows), np.int8), names)}
    each = zip(*map(_VALUES, rows), strict=True)
    for (name, kind), values in zip(FIELDS.items(), each, strict=True):
        if kind is str and name in _CATEGORIES:
            # The type is `str` even if all values are missing, so that the parts can be joined.
            columns[name] = pd.Categorical(pd.array(values, dtype="str"))
        elif kind is str:
            columns[name] = np.array(values, object)
        else:
            columns[name] = np.array(values, np.int64 if kind is int else np.float64)
    return columns


def _together(parts: Sequence[_Columns]) -> _Columns:
    """Join the parts, in the types of the frame."""
    if not parts:
        one = {name: _joined(name, [column]) for name, column in _columns("", [_Row()]).items()}
        return {name: _none_of(column) for name, column in one.items()}
    return {name: _joined(name, [part[name] for part in parts]) for name in parts[0]}


def _none_of(column: Any) -> Any:  # noqa: ANN401  (one of pandas' arrays)
    """Return an empty column of the same type."""
    none = column[:0]
    return none.remove_unused_categories() if isinstance(none, pd.Categorical) else none


def _joined(name: str, pieces: Sequence[Any]) -> Any:  # noqa: ANN401  (one of pandas' arrays)
    kind = FIELDS.get(name)
    if kind is None or name in _CATEGORIES:
        return union_categoricals(list(pieces))
    values = np.concatenate(pieces)
    if kind is int:
        return pd.arrays.IntegerArray(values, values == _MISSING)
    return pd.array(values, dtype="str") if kind is str else values
