"""The records of a run as a data frame: one row for each record.

A field of the wrong type is left empty, and a line that is not a record is skipped. Both are
reported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import pandas as pd

from lab.base.formatting import counted
from lab.base.log import LOG
from lab.protocol.records import FIELDS
from lab.protocol.records.reader import STEPS, is_number, is_whole, lines_of, record_of
from lab.runner.store.directory import RunDir

DAMAGED: Final = "damaged"
"""The key in a frame's `attrs`: a text for each damaged line, with its file and line number."""

_CATEGORIES: Final = frozenset({"kind", "run", "job_name", "status"})
"""Fields with few different texts."""

_TASK: Final = re.compile(r"[a-z]+-[0-9]+")

_Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TYPES: Final[dict[Any, Any]] = {int: _Whole | None, float: float | None, str: str | None}
_Row: Final = msgspec.defstruct(
    "_Row",
    [(name, _TYPES[kind], None) for name, kind in FIELDS.items()],
    gc=False,  # rows refer to no other objects, and there may be a million rows
)
_VALUES: Final = attrgetter(*FIELDS)


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
        A row for each record: `task`, and the fields of `lab.protocol.records.FIELDS`. Whole
        numbers are `Int64` with NA for a missing one, other numbers `float64` with NaN.
        `attrs["damaged"]` names each line that could not be read, or only in part.

    Raises:
        LabError: `run.json` is missing or unreadable.
    """
    damaged: list[str] = []
    tasks = [tasks] if isinstance(tasks, str) else tasks
    names = [task for task in recorded_tasks(run) if tasks is None or task in tasks]
    rows = {task: list(_rows(run.records(task), damaged)) for task in names}
    columns = list(zip(*map(_VALUES, chain(*rows.values())), strict=True)) or [()] * len(FIELDS)
    tasks_of_rows = [task for task, several in rows.items() for _ in several]
    known = list(dict.fromkeys(tasks_of_rows))
    frame = pd.DataFrame(
        {
            "task": pd.Categorical(tasks_of_rows, categories=pd.Index(known, dtype="str")),
            **{name: _array(name, values) for name, values in zip(FIELDS, columns, strict=True)},
        }
    )
    frame["time_unix"] = frame["time_unix"].where(frame["time_unix"].between(*run.read().times))
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
    recorded = {path.stem for path in (run.path / "tasks").glob("*.jsonl") if path.is_file()}
    known = [name for name in run.read().task_names() if name in recorded]
    others = sorted(name for name in recorded.difference(known) if _TASK.fullmatch(name))
    return [*filter(_TASK.fullmatch, known), *others]


def _rows(path: Path, damaged: list[str]) -> Iterator[Any]:
    """Yield the records of a task's file; add each damaged line to `damaged`."""
    decoder = msgspec.json.Decoder(_Row)
    for number, line in enumerate(lines_of(path), 1):
        try:
            yield decoder.decode(line)
        except (ValueError, RecursionError):
            row, fault = _lenient(line)
            if fault:
                damaged.append(f"tasks/{path.name}:{number}: {fault}")
            if row is not None:
                yield row


def _lenient(line: bytes) -> tuple[Any, str]:
    """Return the row of a line that msgspec refuses, such as one with NaN, and the error."""
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
    return raw if is_whole(raw) else None


def _array(name: str, values: Collection[Any]) -> Any:  # noqa: ANN401  (one of pandas' arrays)
    kind = FIELDS[name]
    if kind is str:
        texts = pd.array(list(values), dtype="str")
        return pd.Categorical(texts) if name in _CATEGORIES else texts
    return pd.Series(values, dtype=object).astype("Int64" if kind is int else "float64").array
