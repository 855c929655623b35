"""Event files that grow with the records of a run that is under way.

A file is appended to, never replaced: a TensorBoard that has it open reads on where it was.
"""

from __future__ import annotations

import os
from pathlib import Path

from lab.backends import Say
from lab.run.directory import RunDir
from lab.tensorboard.files import EVENTS, FOLDER, write_events


def grow(run: RunDir, say: Say) -> bool:
    """Append what has been recorded since the files were written.

    Args:
        run: The run; its files were written before.
        say: Receives a line where records are damaged.

    Returns:
        Whether a task has a file now that had none.

    Raises:
        LabError: `run.json` is missing or unreadable, or a link stands in the way.
        OSError: A file cannot be written; it is as it was.
    """
    from lab.run.frame import recorded_tasks  # noqa: PLC0415  (pandas)

    for task in recorded_tasks(run):
        path = run.path / FOLDER / task / EVENTS
        moment_ns = run.records(task).stat().st_mtime_ns
        if path.is_file() and path.stat().st_mtime_ns != moment_ns:
            _append(run, task, path, moment_ns)
    return bool(write_events(run, say))


def _append(run: RunDir, task: str, path: Path, moment_ns: int) -> None:
    from lab.run.frame import records_frame  # noqa: PLC0415
    from lab.tensorboard.events import append, count  # noqa: PLC0415

    there = count(path)
    # Not through a link: the directory of a run may be anybody's.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "ab") as file:
        size = os.fstat(descriptor).st_size
        try:
            append(records_frame(run, [task], say=lambda _line: None), file, there)
            file.flush()
        except OSError:
            os.ftruncate(descriptor, size)  # half an event could not be read
            raise
    os.utime(path, ns=(moment_ns, moment_ns))
