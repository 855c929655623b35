"""The records of a run as a data frame: one row a record.

A record that follows the grammar is decoded straight into its types, a block of lines at a time. A
block in which one does not is read again line by line: a number that is NaN is no fault there, a
field of another type is left empty, and what is no record at all is left out. Both are told.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from lab.backends import Notify
from lab.records import FIELDS
from lab.run.store import RunDir
from lab.task.protocol.results import is_number, is_whole

DAMAGED: Final = "damaged"
"""The key in a frame's `attrs`: a text for each damaged line, with its place."""

STEPS: Final = ("step", "epoch")
"""The kinds of records that stand behind a step of the training."""

_CATEGORIES: Final = frozenset({"kind", "run", "job_name", "status"})
"""Texts of which there are few."""

_TASK: Final = re.compile(r"[a-z]+-[0-9]+")
_BLOCK: Final = 1 << 20  # bytes that are decoded at once
_MISSING: Final = -(2**63)
"""Stands for a whole number that is not there, until the frame is made; no record counts so far."""

_Whole = Annotated[int, msgspec.Meta(gt=_MISSING, le=2**63 - 1)]
_TYPES: Final[dict[Any, tuple[Any, Any]]] = {
    int: (_Whole, _MISSING),
    float: (float, math.nan),
    str: (str | None, None),
}
_Row: Final = msgspec.defstruct(
    "_Row",
    [(name, *_TYPES[kind]) for name, kind in FIELDS.items()],
    gc=False,  # it holds no other objects, and there are a million of them
)
_VALUES: Final = attrgetter(*FIELDS)

_Columns = dict[str, Any]  # name to an array of one element a record


def records_frame(
    run: RunDir, tasks: Collection[str] | None = None, *, notify: Notify | None = None
) -> pd.DataFrame:
    """All records of a run, ordered by task and by place in the task's file.

    Args:
        run: The run. Where it is under way, half a line at the end of a file counts for nothing.
        tasks: Only these tasks; None: all.
        notify: Receives a line where lines are damaged; by default that is a warning.

    Returns:
        A row for each record: `task`, and the fields of `lab.records.FIELDS`. Whole numbers are
        `Int64` with NA where there is none, other numbers `float64` with NaN. `attrs["damaged"]`
        names each line that could not be read, or not all of it.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    damaged: list[str] = []
    tasks = [tasks] if isinstance(tasks, str) else tasks
    names = [task for task in recorded_tasks(run) if tasks is None or task in tasks]
    parts = [part for task in names for part in _parts(run.records(task), task, damaged)]
    frame = pd.DataFrame(_together(parts), copy=False)
    frame.attrs[DAMAGED] = tuple(damaged)
    if damaged:
        several = f"{len(damaged):,} damaged lines" if len(damaged) > 1 else "a damaged line"
        (notify or _warn)(f"run {run.run_id} has {several} among its records: {damaged[0]}")
    return frame


def steps_frame(
    run: RunDir, tasks: Collection[str] | None = None, *, notify: Notify | None = None
) -> pd.DataFrame:
    """The same of those records alone that stand behind a step.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    return steps_of(records_frame(run, tasks, notify=notify))


def steps_of(records: pd.DataFrame) -> pd.DataFrame:
    """Those rows that stand behind a step of the training, and at an epoch's end."""
    return records[records["kind"].isin(STEPS)].reset_index(drop=True)


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=3)


def recorded_tasks(run: RunDir) -> list[str]:
    """Tasks that have records: in the cluster's order, then any others.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    there = {path.stem for path in (run.path / "tasks").glob("*.jsonl") if path.is_file()}
    known = [name for name in run.read().task_names() if name in there]
    others = sorted(name for name in there.difference(known) if _TASK.fullmatch(name))
    return [*filter(_TASK.fullmatch, known), *others]


def _parts(path: Path, task: str, damaged: list[str]) -> Iterator[_Columns]:
    """A task's file in pieces."""
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
    """The rows of a block in which every line is a record; None where one is none."""
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
    """What can be read of a line that is not as it should be, and what is wrong with it."""
    try:
        # Python's own reader knows NaN and Infinity, which its writer writes.
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None, "not a JSON object"
    if not isinstance(record, dict):
        return None, "not a JSON object"
    good = {name: _value(name, record[name]) for name in FIELDS if record.get(name) is not None}
    bad = [name for name, value in good.items() if value is None]
    row = _Row(**{name: value for name, value in good.items() if value is not None})
    return row, f"{', '.join(bad)} of another type" if bad else ""


def _value(name: str, raw: object) -> int | float | str | None:
    """The value of a field; None where it is of another type."""
    if FIELDS[name] is str:
        # Half a surrogate pair is no text that could be written anywhere.
        return raw.encode(errors="replace").decode() if isinstance(raw, str) else None
    if FIELDS[name] is float:
        return float(raw) if is_number(raw) else None
    return raw if is_whole(raw) and raw != _MISSING else None


def _columns(task: str, rows: Sequence[Any]) -> _Columns:
    """A column for each field, and one for the task."""
    names = pd.Index([task], dtype="str")
    columns: _Columns = {"task": pd.Categorical.from_codes(np.zeros(len(rows), np.int8), names)}
    each = zip(*map(_VALUES, rows), strict=True)
    for (name, kind), values in zip(FIELDS.items(), each, strict=True):
        if kind is str and name in _CATEGORIES:
            # Of type `str` also where none of these records has one, so that pieces fit together.
            columns[name] = pd.Categorical(pd.array(values, dtype="str"))
        elif kind is str:
            columns[name] = np.array(values, object)
        else:
            columns[name] = np.array(values, np.int64 if kind is int else np.float64)
    return columns


def _together(parts: Sequence[_Columns]) -> _Columns:
    """The pieces as one, in the types of the frame."""
    if not parts:
        one = {name: _joined(name, [column]) for name, column in _columns("", [_Row()]).items()}
        return {name: _none_of(column) for name, column in one.items()}
    return {name: _joined(name, [part[name] for part in parts]) for name in parts[0]}


def _none_of(column: Any) -> Any:  # noqa: ANN401  (one of pandas' arrays)
    """A column of the same type without an element."""
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
