"""The event files of a run: `tb/<task>/` in its directory, written anew where records are newer.

They are made of the records without TensorFlow. The messages are TensorBoard's own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pandas as pd
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from lab.backends import Notify
from lab.errors import LabError
from lab.run.dataframe import STEPS, recorded_tasks, records_frame
from lab.run.store import RunDir
from lab.task.protocol.files import atomic_writer
from lab.tfrecords import count_records, frame_records

FOLDER: Final = "tb"
EVENTS_FILE: Final = "events.out.tfevents.lab"
"""The file of events that is made of a task's records; a program may have put its own beside it."""

PROGRAM_FOLDER: Final = "own"
"""What stands before the directories of a program's own summaries: one may be called as a task."""

_EVENTS_MARK: Final = "tfevents"
"""What TensorBoard knows a file of events by, anywhere in its name."""

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
_MAX_TIME: Final = 2.0**32  # seconds since the epoch; a page can show no moment that is far later


def write_events(run: RunDir, notify: Notify, *, append: bool = False) -> list[Path]:
    """Write the events of every task whose records are newer than they are.

    Args:
        run: The run; of one that is under way, what there is now.
        notify: Receives a line where records are damaged and a file is written anew.
        append: Append to files that exist, for a TensorBoard that has them open.

    Returns:
        The files that were written anew.

    Raises:
        LabError: `run.json` is missing or unreadable, or a link stands in the way.
        OSError: A file cannot be written; it is as it was.
    """
    written = []
    for task in recorded_tasks(run):
        path = run.path / FOLDER / task / EVENTS_FILE
        exists = path.is_file()
        # Looked at before they are read: what comes meanwhile makes them newer again.
        moment_ns = run.records(task).stat().st_mtime_ns
        if exists and path.stat().st_mtime_ns == moment_ns:
            continue
        if exists and append:
            _append(
                path,
                encode_events(records_frame(run, [task], notify=lambda _line: None)),
                moment_ns,
            )
        elif _replace(path, encode_events(records_frame(run, [task], notify=notify)), moment_ns):
            written.append(path)
    return written


def _replace(path: Path, events: Sequence[bytes], moment_ns: int) -> bool:
    """Replace one file of events; it is as old as the records that it is made of.

    Returns:
        Whether there is one: a parameter server may have nothing to draw.
    """
    for folder in (path.parent.parent, path.parent):
        if folder.is_symlink():
            raise LabError(f"{folder} is a link, and nothing is written there", "remove it")
        folder.mkdir(exist_ok=True)
    if len(events) == 1:  # the format's version alone
        path.unlink(missing_ok=True)
        return False
    # The mark is not in the name of what `replacing` writes: a TensorBoard that is up sees no half.
    with atomic_writer(path, durable=False) as file:
        file.write(frame_records(events))
        file.flush()
        os.utime(file.fileno(), ns=(moment_ns, moment_ns))
    return True


def _append(path: Path, events: Sequence[bytes], moment_ns: int) -> None:
    """Append those events that a file does not hold yet."""
    # Not through a link: the directory of a run may be anybody's.
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
    size = os.fstat(descriptor).st_size
    try:
        with os.fdopen(descriptor, "r+b", closefd=False) as file:
            file.write(frame_records(events[count_records(file) :]))
    except OSError:
        os.ftruncate(descriptor, size)  # half an event could not be read
        raise
    finally:
        os.close(descriptor)
    os.utime(path, ns=(moment_ns, moment_ns))


def event_dirs(run: RunDir) -> dict[str, Path]:
    """Every directory of a run that holds events, by the name that it has in TensorBoard.

    What is made of the records has the task's name; a program's own summaries have that of their
    directory in the run, below `own`; those that lie beside the former are shown with them.
    """
    found: dict[str, Path] = {}
    for folder, names, files in os.walk(run.path):
        path = Path(folder)
        names.sort()
        if any(_EVENTS_MARK in file for file in files):
            inside = path.relative_to(run.path)
            task = inside.parent == Path(FOLDER)
            found[inside.name if task else (Path(PROGRAM_FOLDER) / inside).as_posix()] = path
            if path != run.path:
                names.clear()  # TensorBoard itself looks below
    return found


def link_events(wanted: Mapping[str, RunDir], into: Path) -> None:
    """Lay out links to all events of some runs, as TensorBoard is to show them.

    Args:
        wanted: What each run is called there; "" for one that is shown alone.
        into: A directory that is empty, or has links to what was there before.
    """
    for name, run in wanted.items():
        for place, folder in event_dirs(run).items():
            target = into / name / place
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.is_symlink():
                target.symlink_to(folder.resolve())


def encode_events(records: pd.DataFrame) -> list[bytes]:
    """The events of one task, encoded: first the format's version, then one for each record.

    A record that has nothing that can be drawn has no event.

    Args:
        records: Of `lab.run.dataframe.records_frame`, in the order of their file.
    """
    first = next((moment for moment in records["time_unix"] if _is_time(moment)), 0.0)
    version = Event(wall_time=first, file_version=_VERSION)
    return [each.SerializeToString() for each in (version, *_summaries(records, first))]


def _summaries(records: pd.DataFrame, wall: float) -> Iterator[Event]:
    """An event for each record that has something to draw; its step is the global step.

    Where a record has no global step, as some of a printed program, its local step stands for it.
    """
    table = records.assign(local_steps_per_s=_rates(records))
    steps = table["global_step"].fillna(table["local_step"])
    columns = [
        table[field].to_numpy(float, na_value=math.nan) * (1000 if tag.endswith(_MILLI) else 1)
        for tag, field in TAGS.items()
    ]
    figures = zip(*columns, strict=True)
    for step, moment, values in zip(steps, table["time_unix"], figures, strict=True):
        wall = moment if _is_time(moment) else wall
        drawn = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in zip(TAGS, values, strict=True)
            if math.isfinite(value)
        ]
        if drawn and not pd.isna(step):
            yield Event(wall_time=wall, step=int(step), summary=Summary(value=drawn))


def _rates(records: pd.DataFrame) -> pd.Series[float]:
    """Local steps a second from one step record to the next of the same attempt."""
    steps = records[records["kind"].isin(STEPS)]
    groups = steps.groupby(steps["attempt"].fillna(0))
    made = groups["local_step"].diff().astype(float)
    took = groups["time_unix"].diff()
    return (made / took.where(took > 0)).reindex(records.index)


def _is_time(moment: float) -> bool:
    return 0 <= moment < _MAX_TIME
