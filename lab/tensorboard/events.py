"""From a task's records to TensorBoard's event files.

They are written without TensorFlow: the messages and the framing are TensorBoard's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

import pandas as pd
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from lab.run.frame import STEPS
from lab.tensorboard.alone import without_tensorflow

TAGS: Final = {
    "training/loss": "loss",
    "training/accuracy": "accuracy",
    "training/staleness": "staleness",
    "work/local_step": "local_step",
    "work/local_steps_per_s": "local_steps_per_s",
    "work/step_time_ms": "step_time_s",
    "work/wait_time_ms": "wait_time_s",
}
"""Tag in TensorBoard to the field of a record; the steps a second are worked out from two."""

_MILLI: Final = "_ms"  # an axis of thousandths cannot be read
_VERSION: Final = "brain.Event:2"
_LATEST: Final = 2.0**32  # seconds since the epoch; a page can show no moment that is far later


def write(records: pd.DataFrame, file: BinaryIO) -> int:
    """Write the records of one task.

    Args:
        records: Of `lab.run.frame.records_frame`, in the order of their file.
        file: Receives the events.

    Returns:
        How many records say something that can be drawn.
    """
    first = Event(wall_time=_first(records), file_version=_VERSION)
    RecordWriter(file).write(first.SerializeToString())
    return append(records, file, 0)


def append(records: pd.DataFrame, file: BinaryIO, there: int) -> int:
    """Write what came since.

    Args:
        records: All of the task's, those that were written before among them.
        file: Receives the events.
        there: How many events of these records it holds.

    Returns:
        How many were added.
    """
    writer = RecordWriter(file)
    added = 0
    for event in islice(_events(records, _first(records)), there, None):
        writer.write(event.SerializeToString())
        added += 1
    return added


def count(path: Path) -> int:
    """How many events of records a file holds, as TensorBoard reads it."""
    without_tensorflow()
    # Imported here: it must have been told so.
    from tensorboard.backend.event_processing.event_file_loader import (  # noqa: PLC0415
        LegacyEventFileLoader,
    )

    return sum(event.HasField("summary") for event in LegacyEventFileLoader(str(path)).Load())


def _first(records: pd.DataFrame) -> float:
    """The first moment that the records tell, in seconds since the epoch; 0 where none does."""
    return next((moment for moment in records["time_unix"] if _is_time(moment)), 0.0)


def _events(records: pd.DataFrame, wall: float) -> Iterator[Event]:
    """An event for each record that says something; its step is the global step.

    Where a record has no global step, as some of a printed program, its local step stands for it.
    """
    frame = records.assign(local_steps_per_s=_rates(records))
    steps = frame["global_step"].fillna(frame["local_step"])
    columns = [
        frame[field].to_numpy(float, na_value=math.nan) * (1000 if tag.endswith(_MILLI) else 1)
        for tag, field in TAGS.items()
    ]
    figures = zip(*columns, strict=True)
    for step, moment, values in zip(steps, frame["time_unix"], figures, strict=True):
        wall = moment if _is_time(moment) else wall
        told = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in zip(TAGS, values, strict=True)
            if math.isfinite(value)
        ]
        if told and not pd.isna(step):
            yield Event(wall_time=wall, step=int(step), summary=Summary(value=told))


def _rates(records: pd.DataFrame) -> pd.Series[float]:
    """Local steps a second from one step record to the next of the same attempt."""
    steps = records[records["kind"].isin(STEPS)]
    groups = steps.groupby(steps["attempt"].fillna(0))
    made = groups["local_step"].diff().astype(float)
    took = groups["time_unix"].diff()
    return (made / took.where(took > 0)).reindex(records.index)


def _is_time(moment: float) -> bool:
    return 0 <= moment < _LATEST
