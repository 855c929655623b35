"""The run store: the directories `runs/<id>/`, the names of their files, and the runs' statuses."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.base.errors import InputError, LabError
from lab.base.strict_json import parse
from lab.base.variables import LAB_RUNS_DIR
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.files import read_regular, write_atomically
from lab.protocol.volume.layout import RUN_ID
from lab.protocol.volume.states import State
from lab.protocol.volume.status import digest_of
from lab.runner.store.run_info import RunInfo, convert

if TYPE_CHECKING:
    from lab.runner.store.task_progress import TaskProgress

DEFAULT_RUNS_DIR: Final = "runs"
LAST: Final = "last"
EVENTS_FILE: Final = "events.out.tfevents.lab"
"""TensorBoard's event file from a task's records; a program may have its own one beside it."""

_GLANCE_S: Final = 0.5
"""Seconds to wait for a run's lock: a process that only checks the lock holds it briefly."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """One run's directory in the local run store."""

    path: Path

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def info_path(self) -> Path:
        """`run.json`."""
        return self.path / "run.json"

    @property
    def program(self) -> Path:
        """The copy of the user's own program and its modules."""
        return self.path / "program"

    @property
    def original(self) -> Path:
        """The original files of `program/` that were converted; often missing."""
        return self.path / "original"

    @property
    def files(self) -> Path:
        """The programs' working directory: their data files and the files that they wrote."""
        return self.path / "files"

    @property
    def checkpoints(self) -> Path:
        """The checkpoints that were collected, or those that the run resumes from."""
        return self.path / "checkpoints"

    @property
    def summary_path(self) -> Path:
        """`summary.json`."""
        return self.path / "summary.json"

    @property
    def gpu_samples(self) -> Path:
        """The GPU samples while a client followed, one JSON object for each line; often missing."""
        return self.path / "gpu.jsonl"

    def records(self, task: str) -> Path:
        """The records of one task, one JSON object for each line."""
        return self.path / "tasks" / f"{task}.jsonl"

    def log(self, task: str) -> Path:
        """The log of one task: all of its lines that are not records."""
        return self.path / "logs" / f"{task}.log"

    def status(self, task: str) -> Path:
        """The status of one task."""
        return self.path / "status" / f"{task}.json"

    def create(self, info: RunInfo) -> None:
        """Create the directory and write `run.json`, before anything starts.

        Raises:
            FileExistsError: The directory already exists.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir()
        self.write(info)

    def discard(self) -> None:
        """Remove the directory of a run that did not start; ignore errors of the file system."""
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, info: RunInfo) -> None:
        """Replace `run.json` atomically."""
        write_atomically(self.info_path, info.to_json())

    def read(self) -> RunInfo:
        """Read `run.json`.

        Raises:
            LabError: It is missing or unreadable.
        """
        try:
            return RunInfo.from_json(read_regular(self.info_path))
        except FileNotFoundError:
            raise LabError(
                f"{self.info_path} is missing", f"collect the run with `lab attach {self.run_id}`"
            ) from None
        except ValueError as error:
            raise LabError(
                f"{self.info_path}: {error}", "move the run's directory out of the run store"
            ) from error

    def complete(self) -> bool:
        """Whether the run has ended and all of it was collected.

        An aborted run is not complete: its tasks may still train. An imported run is not complete:
        a run on a run volume with its id is another one.
        """
        if not (self.info_path.is_file() and self.summary_path.is_file()):
            return False
        info = self.read()
        is_whole = info.state.ended and info.collected and not info.imported
        return is_whole and info.run_id == self.run_id

    def is_followed(self) -> bool:
        """Whether a process follows or collects the run, and so holds its lock."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    @contextmanager
    def opened(self) -> Iterator[OpenRun]:
        """Lock the run and read `run.json`.

        Raises:
            LabError: Another process collects the run, or `run.json` cannot be read.
        """
        with self.locked():
            yield OpenRun(self, self.read())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run against other collectors; the lock ends with this process.

        Raises:
            LabError: Another process collects the run.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if not _lock(descriptor):
                raise LabError(
                    f"another process collects run {self.run_id}",
                    "wait until that process has ended",
                )
            yield
        finally:
            os.close(descriptor)


@dataclass(slots=True)
class OpenRun:
    """A run that this process has locked, with the content of its `run.json`.

    Only the process that holds the lock changes `run.json`, so `info` is always current.

    Attributes:
        directory: Its directory.
        info: The content of its `run.json`.
        progress: The progress of each task, once all of its collected records have been read.
    """

    directory: RunDir
    info: RunInfo
    progress: Mapping[str, TaskProgress] | None = None

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self.directory.run_id

    def update(self, **changes: Any) -> RunInfo:  # noqa: ANN401  (fields of RunInfo)
        """Change fields of `run.json` and return it."""
        info = replace(self.info, **changes)
        self.directory.write(info)
        self.info = info
        return info


def _lock(descriptor: int) -> bool:
    """Lock a run's directory; return False if another process keeps the lock."""
    deadline = time.monotonic() + _GLANCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        else:
            return True


def runs_path(given: str | os.PathLike[str] | None) -> Path:
    """Return the path of the run store: the flag, `LAB_RUNS_DIR`, or `./runs`.

    Raises:
        InputError: The path exists and is not a directory.
    """
    path = Path(given or os.environ.get(LAB_RUNS_DIR) or DEFAULT_RUNS_DIR)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is not a directory", "use another directory with --runs-dir")
    return path


def all_runs(store: Path) -> list[RunDir]:
    """Return every run of a run store, the oldest first; other directories are skipped.

    Runs with an unreadable `run.json` are first, since their start time is unknown.
    """
    return list(infos(store))


def infos(store: Path) -> dict[RunDir, RunInfo | None]:
    """Return every run of a run store with its `run.json`, the oldest first; None: unreadable."""
    if not store.is_dir():
        return {}
    found = []
    for run in map(RunDir, store.iterdir()):
        if run.info_path.is_file():
            info = None
            with suppress(LabError, OSError):
                info = run.read()
            found.append((info.started_unix if info else 0.0, run.run_id, run, info))
    return {run: info for _, _, run, info in sorted(found, key=itemgetter(0, 1))}


def safe_run_id(run_id: str) -> str:
    """Return the id if it is safe as the name of a directory.

    Raises:
        LabError: The text is not a run id.
    """
    if not RUN_ID.fullmatch(run_id):
        raise LabError(f"not a run id: {run_id!r}", "remove that request from the run volume")
    return run_id


def altered_task(run: RunDir, info: RunInfo, statuses: Mapping[str, TaskStatus]) -> str | None:
    """Return the first task whose records are not those that its agent wrote; None: none.

    Records that were left on the run volume do not count.

    Raises:
        OSError: Records cannot be read.
    """
    left = {file.path for file in info.left}
    for task, status in statuses.items():
        path, written = run.records(task), status.records_sha256
        is_left = f"tasks/{path.name}" in left
        if written and not is_left and digest_of(path).hexdigest() != written:
            return task
    return None


def read_statuses(
    run: RunDir, info: RunInfo, *, skip_damaged: bool = False
) -> dict[str, TaskStatus]:
    """Return the status of every task that has written one, by task name.

    Args:
        run: The run.
        info: Its `run.json`.
        skip_damaged: Whether to skip unreadable files; a collection replaces them.

    Raises:
        LabError: A file cannot be read; the message names the file and the key.
    """
    statuses = {}
    for task in info.task_names():
        path = run.status(task)
        try:
            statuses[task] = convert(parse(read_regular(path)), TaskStatus)
        except FileNotFoundError:
            continue
        except ValueError as error:
            if not skip_damaged:
                fix = f"collect it again with `lab attach {run.run_id}`, or remove the file"
                raise LabError(f"{path}: {error}", fix) from error
    return statuses


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run.

    Attributes:
        info: Its `run.json`, with the newest known state and reason.
        statuses: The newest known status of each task.
        note: A hint for the user; may be empty.
    """

    info: RunInfo
    statuses: Mapping[str, TaskStatus]
    note: str = ""

    @classmethod
    def recorded(cls, run: RunDir) -> RunStatus:
        """Return the status in the run store.

        Raises:
            LabError: A file of the run cannot be read.
        """
        info = run.read()
        return cls(info, read_statuses(run, info))

    def with_state(self, state: State, reason: str) -> RunStatus:
        """Return a copy with another state."""
        return replace(self, info=replace(self.info, state=state, reason=reason))

    @property
    def state(self) -> State:
        """The run's state."""
        return self.info.state

    @property
    def reason(self) -> str:
        """The reason for this state; may be empty."""
        return self.info.reason


@dataclass(frozen=True, slots=True)
class VolumeStatus:
    """The status of a run on a run volume.

    Attributes:
        statuses: The status of each task.
        stopped: Whether no agent runs any more, so that the statuses cannot change.
    """

    statuses: Mapping[str, TaskStatus]
    stopped: bool


Probe = Callable[[RunInfo], VolumeStatus | None]
"""Looks for a run on the run volumes; None: no volume has it. Raises LabError if unknown."""
