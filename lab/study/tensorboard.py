"""TensorBoard's event files of runs, made from their records without TensorFlow.

Their messages are those of TensorBoard.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pandas as pd
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from lab.base.errors import LabError
from lab.base.files import atomic_writer
from lab.protocol.records.reader import STEPS
from lab.runner.store.dataframe import read_records, recorded_tasks
from lab.runner.store.directory import EVENTS_FILE, RunDir
from lab.study.tfrecords import frame_records

TAGS: Final = {
    "training/loss": "loss",
    "training/accuracy": "accuracy",
    "training/staleness": "staleness",
    "work/local_step": "local_step",
    "work/local_steps_per_s": "local_steps_per_s",
    "work/step_time_ms": "step_time_s",
    "work/wait_time_ms": "wait_time_s",
}
"""The record field of each TensorBoard tag; the steps per second are computed from two fields."""

_MILLI: Final = "_ms"  # small fractions of a second are hard to read on an axis
_VERSION: Final = "brain.Event:2"
_MAX_TIME: Final = 2.0**32  # seconds since the epoch; TensorBoard cannot show much later times


def write_events(runs: Sequence[RunDir], folder: Path) -> list[Path]:
    """Write an event file for every task that has values to draw.

    Args:
        runs: The runs. Each of several has its own directory, with one for each of its tasks.
        folder: The directory to write to; earlier event files in it are removed.

    Returns:
        The files.

    Raises:
        LabError: A directory is a link, or a file cannot be written.
    """
    try:
        _make(folder)
        for earlier in folder.rglob(EVENTS_FILE):
            earlier.unlink()
        return list(_write_all(runs, folder))
    except OSError as error:
        raise LabError(f"{folder} cannot be written: {error.strerror or error}") from error


def _write_all(runs: Sequence[RunDir], folder: Path) -> Iterator[Path]:
    seen: Counter[str] = Counter()
    for run in runs:
        name = run.path.resolve().name
        seen[name] += 1
        # Two archives can have the same run.
        unique = name if seen[name] == 1 else f"{name}-{seen[name]}"
        target = folder if len(runs) == 1 else _make(folder / unique)
        for task in recorded_tasks(run):
            events = encode_events(read_records(run, [task]))
            if len(events) > 1:  # a parameter server may have the format's version alone
                yield _write(_make(target / task) / EVENTS_FILE, events)


def _make(folder: Path) -> Path:
    # Another user may own the run's directory.
    if folder.is_symlink():
        raise LabError(f"{folder} is a link, and `lab` does not follow links", "remove it")
    folder.mkdir(exist_ok=True)
    return folder


def _write(path: Path, events: Sequence[bytes]) -> Path:
    # TensorBoard reads no partial file: the temporary name of `atomic_writer` lacks `tfevents`.
    with atomic_writer(path, durable=False) as file:
        file.write(frame_records(events))
    return path


def encode_events(records: pd.DataFrame) -> list[bytes]:
    """Return the encoded events of one task: first the format's version, then one per record.

    A record without a value to draw has no event.

    Args:
        records: The result of `lab.runner.store.dataframe.read_records`, in the order of the file.
    """
    first = next((moment for moment in records["time_unix"] if _is_time(moment)), 0.0)
    version = Event(wall_time=first, file_version=_VERSION)
    return [each.SerializeToString() for each in (version, *_summaries(records, first))]


def _summaries(records: pd.DataFrame, last_time: float) -> Iterator[Event]:
    """Yield an event for each record with a value to draw; its step is the global step.

    Some records of a printed program have no global step; then the event has the local step.
    """
    table = records.assign(local_steps_per_s=_rates(records))
    steps = table["global_step"].fillna(table["local_step"])
    columns = [
        table[field].to_numpy(float, na_value=math.nan) * (1000 if tag.endswith(_MILLI) else 1)
        for tag, field in TAGS.items()
    ]
    rows = zip(*columns, strict=True)
    for step, moment, values in zip(steps, table["time_unix"], rows, strict=True):
        last_time = moment if _is_time(moment) else last_time
        drawn = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in zip(TAGS, values, strict=True)
            if math.isfinite(value)
        ]
        if drawn and not pd.isna(step):
            yield Event(wall_time=last_time, step=int(step), summary=Summary(value=drawn))


def _rates(records: pd.DataFrame) -> pd.Series[float]:
    """Return the local steps per second between two step records of the same attempt."""
    steps = records[records["kind"].isin(STEPS)]
    # The clock may be changed during a training.
    steps = steps.assign(seconds=steps["elapsed_s"].fillna(steps["time_unix"]))
    groups = steps.groupby(steps["attempt"].fillna(0))
    steps_made = groups["local_step"].diff().astype(float)
    seconds = groups["seconds"].diff()
    return (steps_made / seconds.where(seconds > 0)).reindex(records.index)


def _is_time(moment: float) -> bool:
    return 0 <= moment < _MAX_TIME
