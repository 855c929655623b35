"""Runs in TensorBoard: their event files `tb/<task>/…`, and a server for this host only.

The files are made from the records without TensorFlow, if the records are newer. Their messages
are those of TensorBoard.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pandas as pd
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary

from lab.errors import LabError
from lab.records.reader import STEPS
from lab.store.dataframe import read_records, recorded_tasks, records_frame
from lab.store.directory import EVENTS_FILE, RunDir
from lab.tfrecords import frame_records
from lab.volume.files import atomic_writer

FOLDER: Final = "tb"

PROGRAM_FOLDER: Final = "own"
"""The prefix of a program's own summaries in TensorBoard; it avoids conflicts with task names."""

_EVENTS_MARK: Final = "tfevents"
"""TensorBoard recognizes an event file by this text anywhere in its name."""

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
_START: Final = Event(session_log=SessionLog(status=SessionLog.START), step=-(2**63))
_RESTART: Final = frame_records([_START.SerializeToString()] * 2)
"""At the second start in a file, TensorBoard drops all events that it has read."""

_MAX_TIME: Final = 2.0**32  # seconds since the epoch; TensorBoard cannot show much later times


def write_events(run: RunDir, *, append: bool = False) -> list[Path]:
    """Write the event file of every task with newer records.

    Args:
        run: The run; if it is under way, its current records.
        append: Whether to append to existing files, for a TensorBoard that has them open.

    Returns:
        The files that were rewritten.

    Raises:
        LabError: `run.json` is missing or unreadable, or a target directory is a link.
        OSError: A file cannot be written; its content is unchanged.
    """
    written = []
    for task in recorded_tasks(run):
        path = run.path / FOLDER / task / EVENTS_FILE
        exists = path.is_file()
        # The time is read before the records: a later record makes them newer again.
        modified_ns = run.records(task).stat().st_mtime_ns
        if exists and path.stat().st_mtime_ns == modified_ns:
            continue
        if exists and append:
            _append(path, encode_events(read_records(run, [task])), modified_ns)
        elif _replace(path, encode_events(records_frame(run, [task])), modified_ns):
            written.append(path)
    return written


def _replace(path: Path, events: Sequence[bytes], modified_ns: int) -> bool:
    """Replace one event file; it gets the modification time of its records.

    Returns:
        Whether there is a file: a parameter server may have no values to draw.
    """
    for folder in (path.parent.parent, path.parent):
        if folder.is_symlink():
            raise LabError(f"{folder} is a link, and `lab` does not write to it", "remove it")
        folder.mkdir(exist_ok=True)
    if len(events) == 1:  # the format's version alone
        path.unlink(missing_ok=True)
        return False
    # The temporary name of `atomic_writer` lacks the mark: TensorBoard never reads a partial file.
    with atomic_writer(path, durable=False) as file:
        file.write(frame_records(events))
        file.flush()
        os.utime(file.fileno(), ns=(modified_ns, modified_ns))
    return True


def _append(path: Path, events: Sequence[bytes], modified_ns: int) -> None:
    """Append the events that a file does not contain yet.

    If it contains other events, the records were replaced. A TensorBoard continues to read the file
    where it stopped. So these events stay in the file, and the new ones follow a restart.
    """
    content = frame_records(events)
    # Do not follow a link: another user may own the run's directory.
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
    size = os.fstat(descriptor).st_size
    try:
        with os.fdopen(descriptor, "r+b", closefd=False) as file:
            there = file.read().rpartition(_RESTART)[2]
            is_begin = content.startswith(there)
            file.write(content[len(there) :] if is_begin else _RESTART + content)
    except OSError:
        os.ftruncate(descriptor, size)  # TensorBoard cannot read a partial event
        raise
    finally:
        os.close(descriptor)
    os.utime(path, ns=(modified_ns, modified_ns))


def event_dirs(run: RunDir) -> dict[str, Path]:
    """Return every directory of a run with event files, by its name in TensorBoard.

    The events from records have the task's name. A program's own summaries have the path of their
    directory in the run, below `own`. Summaries in a task's directory are shown with the task.
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
                names.clear()  # TensorBoard itself searches the subdirectories
    return found


def link_events(wanted: Mapping[str, RunDir], into: Path) -> None:
    """Create links to all event directories of some runs, in the layout that TensorBoard shows.

    Args:
        wanted: The runs by their names in TensorBoard; "" for a single run.
        into: The target directory; it is empty or has links of an earlier call.
    """
    for name, run in wanted.items():
        for shown_as, folder in event_dirs(run).items():
            target = into / name / shown_as
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.is_symlink():
                target.symlink_to(folder.resolve())


def encode_events(records: pd.DataFrame) -> list[bytes]:
    """Return the encoded events of one task: first the format's version, then one per record.

    A record without a value to draw has no event.

    Args:
        records: The result of `lab.store.dataframe.records_frame`, in the order of the file.
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


HOST: Final = "127.0.0.1"

_NO_TENSORFLOW: Final = "tensorboard.compat.notf"
"""TensorBoard does not import TensorFlow if this module exists.

The import of TensorFlow would take 3 seconds.
"""

_MAX_POINTS: Final = 10_000
"""The maximum number of points per curve; from a longer curve TensorBoard takes a sample."""


def serve(folder: Path, port: int) -> str:
    """Start the server in a thread that ends with this process.

    Args:
        folder: A directory with the runs' event files.
        port: The port; 0: any free port.

    Returns:
        The URL.

    Raises:
        LabError: The port is in use, or not permitted.
    """
    sys.modules.setdefault(_NO_TENSORFLOW, types.ModuleType(_NO_TENSORFLOW))
    # A late import: it takes a second, and needs the module above.
    from tensorboard import default, program  # noqa: PLC0415

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for each request
    # Only the static plugins: the others are code of any installed package.
    board = program.TensorBoard(default.get_static_plugins())
    board.configure(
        argv=[
            "",
            f"--logdir={folder}",
            f"--host={HOST}",
            f"--port={port}",
            # The data server would be a separate process with its own port.
            "--load_fast=false",
            f"--samples_per_plugin=scalars={_MAX_POINTS}",
            "--window_title=lab",
        ]
    )
    try:
        return str(board.launch())
    except (program.TensorBoardServerException, OSError) as error:
        raise LabError(
            f"port {port} of {HOST} cannot be used", "use another port, or leave out --port"
        ) from error
