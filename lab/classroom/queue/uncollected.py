"""The runs that a seat has not collected from the queue, for the archive of its work.

A student's program wrote the run volume. The archive gets only regular files, under safe names, up
to the limits below.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from lab.backends.classroom.protocol import State
from lab.backends.compose.backend import ComposeBackend
from lab.backends.environment import Environment
from lab.classroom.queue.folder import QueueDir, end_environments
from lab.classroom.queue.turns import stop_run
from lab.classroom.state import ClassDir
from lab.classroom.work import safe_name, write_entry
from lab.errors import LabError
from lab.formatting import counted
from lab.log import LOG
from lab.run import lifecycle
from lab.run.collect import Collector
from lab.run.status import GONE
from lab.store.directory import RunDir, safe_run_id
from lab.store.run_info import RunInfo
from lab.text import short
from lab.volume import Chunk, Request
from lab.volume.states import State as RunState

MAX_BYTES: Final = 4 << 30
"""The maximum size of the runs of one seat."""

MAX_FILES: Final = 10_000
"""The maximum number of files of the runs of one seat."""

_REASON: Final = "the class ends"


def end_all_runs(folder: ClassDir) -> None:
    """End the turns of all seats; the run volumes stay, and the seats can still collect.

    A service that does not answer is no error: the class must end nevertheless.

    Args:
        folder: The class.
    """
    if not folder.is_up:
        return
    try:
        end_environments(folder, [seat.name for seat in folder.stored().plan.seats], keep=True)
    except LabError as error:
        LOG.warning(f"warning: {error}")


def save_runs(folder: ClassDir, seat: str, archive: zipfile.ZipFile, target: str) -> None:
    """Add the runs that a seat has not collected to an archive, as a run store.

    Args:
        folder: The class.
        seat: The seat.
        archive: The archive.
        target: The directory in the archive.

    Raises:
        LabError: The class cannot be read.
        OSError: The disk is full, or fails.
    """
    if not QueueDir(folder).path.exists():
        return  # its service never began
    saved, backend = _Saved(archive, target), ComposeBackend()
    for entry in QueueDir(folder).found():
        if entry.seat != seat or entry.state is State.WAITING or entry.removes:
            continue
        with _reported(f"{seat}: not in the archive: runs of {entry.name} in the queue"):
            environment = backend.find_any(entry.project)
            if environment is not None:
                stop_run(environment, _REASON)  # a service that has ended left it
                _save(environment, saved, folder.path)
    if saved.runs:
        LOG.info(f"{seat}: {counted(saved.runs, 'run')} that it had not collected, in {target}")
    if saved.is_full:
        LOG.warning(f"{seat}: not in the archive: what its runs in the queue have beyond the limit")


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Report an error and go on: what a student wrote must not prevent the end of the class."""
    try:
        yield
    except LabError as error:
        LOG.warning(f"{what}: {short(str(error))}")


def _save(environment: Environment, saved: _Saved, place: Path) -> None:
    known = environment.collected()
    for request in environment.runs():
        if request.run_id not in known and not saved.is_full:
            what = f"not in the archive: run {short(request.run_id)}"
            with _reported(what), TemporaryDirectory(prefix="run-", dir=place) as store:
                saved.add(_collected(request, environment, Path(store), saved))


@dataclass(slots=True)
class _Saved:
    """The runs of one seat in an archive, and what is left of the limits."""

    archive: zipfile.ZipFile
    target: str
    runs: int = 0
    bytes_left: int = MAX_BYTES
    files_left: int = MAX_FILES

    @property
    def is_full(self) -> bool:
        """Whether a limit was reached."""
        return self.bytes_left < 0 or self.files_left < 0

    def allows(self, chunk: Chunk) -> bool:
        """Count a piece of a file; return whether it is within the limits."""
        self.bytes_left -= len(chunk.data)
        self.files_left -= not chunk.offset  # the first piece of a file
        return not self.is_full

    def add(self, run: RunDir) -> None:
        """Add the files of a run to the archive, unless it has a run of this name."""
        if f"{self.target}/{run.run_id}/run.json" in self.archive.NameToInfo:
            return
        self.runs += 1
        # A list instead of recursion: a program may have nested many directories.
        folders = [run.path]
        while folders:
            for path in sorted(folders.pop().iterdir()):
                if path.is_dir():
                    folders.append(path)
                    continue
                parts = path.relative_to(run.path.parent).parts
                name = "/".join((self.target, *map(safe_name, parts)))
                found = path.stat()
                with path.open("rb") as content:
                    write_entry(self.archive, name, content, found.st_size, found.st_mtime)


def _collected(request: Request, environment: Environment, store: Path, saved: _Saved) -> RunDir:
    """Collect a run into a run store, up to the limits.

    The run volume gets no note of that: the archive may still fail.
    """
    run = RunDir(store / safe_run_id(request.run_id))
    run.create(
        RunInfo.of_request(request, backend=environment.backend, project=environment.project)
    )
    collector = Collector(run.path)
    for chunk in _within(saved, environment.stream(request.run_id, {}, follow=False, rest=True)):
        collector.accept(chunk)
    with run.opened() as opened:
        opened.update(left=tuple(collector.left.values()))
        lifecycle.abort(opened, RunState.LOST, GONE)
        opened.update(collected=not saved.is_full)
    return run


def _within(saved: _Saved, chunks: Iterator[Chunk | None]) -> Iterator[Chunk]:
    for chunk in chunks:
        if chunk is not None:
            if not saved.allows(chunk):
                return
            yield chunk
