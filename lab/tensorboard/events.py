"""From a task's records to TensorBoard's event files.

They are written without TensorFlow: the messages and the framing are TensorBoard's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import BinaryIO, Final

import pandas as pd
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from lab.run.frame import STEPS

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
    writer = RecordWriter(file)
    first = next((moment for moment in records["time_unix"] if _is_time(moment)), 0.0)
    writer.write(Event(wall_time=first, file_version=_VERSION).SerializeToString())
    count = 0
    for event in _events(records, first):
        writer.write(event.SerializeToString())
        count += 1
    return count


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
