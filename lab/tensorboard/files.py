"""The event files of a run: `tb/<task>/` in its directory, written anew where records are newer."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lab.backends import Say
from lab.errors import LabError
from lab.run.store import RunDir

FOLDER: Final = "tb"
EVENTS: Final = "events.out.tfevents.lab"
"""The file of events that is made of a task's records; a program may have put its own beside it."""

OWN: Final = "own"
"""What stands before the directories of a program's own summaries: one may be called as a task."""

_MARK: Final = "tfevents"
"""What TensorBoard knows a file of events by, anywhere in its name."""


def write_events(run: RunDir, say: Say) -> list[Path]:
    """Write the events of every task whose records are newer than they are.

    Args:
        run: The run; of one that is under way, what there is now.
        say: Receives a line where records are damaged.

    Returns:
        The files that were written.

    Raises:
        LabError: `run.json` is missing or unreadable, or a link stands in the way.
        OSError: A file cannot be written.
    """
    from lab.run.frame import recorded_tasks  # noqa: PLC0415  (pandas)

    written = []
    for task in recorded_tasks(run):
        path = run.path / FOLDER / task / EVENTS
        # Looked at before they are read: what comes meanwhile makes them newer again.
        moment_ns = run.records(task).stat().st_mtime_ns
        current = path.is_file() and path.stat().st_mtime_ns == moment_ns
        if not current and _write(run, task, path, moment_ns, say):
            written.append(path)
    return written


def _write(run: RunDir, task: str, path: Path, moment_ns: int, say: Say) -> bool:
    """Replace one file of events; it is as old as the records that it is made of.

    Returns:
        Whether there is one: a parameter server may have nothing to draw.
    """
    from lab.run.frame import records_frame  # noqa: PLC0415
    from lab.tensorboard.events import write  # noqa: PLC0415

    for folder in (path.parent.parent, path.parent):
        if folder.is_symlink():
            raise LabError(f"{folder} is a link, and nothing is written there", "remove it")
        folder.mkdir(exist_ok=True)
    # Without the mark in its name: a TensorBoard that is up shall not find half of it.
    temporary = path.with_name(f".{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            count = write(records_frame(run, [task], say=say), file)
        if not count:
            path.unlink(missing_ok=True)
            return False
        os.utime(temporary, ns=(moment_ns, moment_ns))
        temporary.replace(path)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def places(run: RunDir) -> dict[str, Path]:
    """Every directory of a run that holds events, by the name that it has in TensorBoard.

    What is made of the records has the task's name; a program's own summaries have that of their
    directory in the run, below `own`; those that lie beside the former are shown with them.
    """
    found: dict[str, Path] = {}
    for folder, names, files in os.walk(run.path):
        path = Path(folder)
        names.sort()
        if any(_MARK in file for file in files):
            inside = path.relative_to(run.path)
            task = inside.parent == Path(FOLDER)
            found[inside.name if task else (Path(OWN) / inside).as_posix()] = path
            if path != run.path:
                names.clear()  # TensorBoard itself looks below
    return found


def link(wanted: Mapping[str, RunDir], into: Path) -> None:
    """Lay out links to all events of some runs, as TensorBoard is to show them.

    Args:
        wanted: What each run is called there; "" for one that is shown alone.
        into: A directory that is empty, or has links to what was there before.
    """
    for name, run in wanted.items():
        for place, folder in places(run).items():
            target = into / name / place
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.is_symlink():
                target.symlink_to(folder.resolve())


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
