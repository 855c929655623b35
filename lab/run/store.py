"""The run store: the directories `runs/<id>/`, and what each file in them is called."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from lab.errors import InputError, LabError
from lab.formatting import counted
from lab.run.run_info import RunInfo, convert
from lab.strict_json import parse
from lab.task.protocol import RUN_ID, TaskStatus
from lab.task.protocol.files import read_regular, write_atomically

DEFAULT_RUNS_DIR: Final = "runs"
LAST: Final = "last"
_BEFORE_LAST: Final = re.compile(rf"{LAST}~(\d{{1,6}})")

_GLANCE_S: Final = 0.5
"""A process that checks whether a run is followed holds its lock for a moment."""


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
        """The copy of a program of the user's own, with the modules beside it."""
        return self.path / "program"

    @property
    def original(self) -> Path:
        """Files of `program/` as they were before they were converted; often missing."""
        return self.path / "original"

    @property
    def files(self) -> Path:
        """The programs' working directory: data files that came with them, and what they wrote."""
        return self.path / "files"

    @property
    def checkpoints(self) -> Path:
        """Its checkpoints: those that were collected, or those that it resumes from."""
        return self.path / "checkpoints"

    @property
    def summary_path(self) -> Path:
        """`summary.json`."""
        return self.path / "summary.json"

    @property
    def gpu_samples(self) -> Path:
        """Samples of the GPUs while a client followed, one JSON object a line; often missing."""
        return self.path / "gpu.jsonl"

    def records(self, task: str) -> Path:
        """The records of one task, one JSON object a line."""
        return self.path / "tasks" / f"{task}.jsonl"

    def log(self, task: str) -> Path:
        """The other lines of one task."""
        return self.path / "logs" / f"{task}.log"

    def status(self, task: str) -> Path:
        """The state of one task."""
        return self.path / "status" / f"{task}.json"

    def create(self, info: RunInfo) -> None:
        """Make the directory and write `run.json`, before anything starts.

        Raises:
            FileExistsError: The directory is there already.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir()
        self.write(info)

    def discard(self) -> None:
        """Remove the directory of a run that did not start, as far as the file system permits."""
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
                f"{self.info_path} is missing", f"bring it home with `lab collect {self.run_id}`"
            ) from None
        except ValueError as error:
            raise LabError(f"{self.info_path}: {error}", "move that directory away") from error

    def complete(self) -> bool:
        """Whether the run has ended and all of it was collected.

        An aborted run is not complete: its tasks may still train.
        """
        if not (self.info_path.is_file() and self.summary_path.is_file()):
            return False
        info = self.read()
        return info.state.ended and info.collected

    def is_followed(self) -> bool:
        """Whether a living process holds the run: it follows it, or collects it."""
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
            LabError: Another process collects this run, or `run.json` cannot be read.
        """
        with self.locked():
            yield OpenRun(self, self.read())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run against other collectors; the lock ends with its process.

        Raises:
            LabError: Another process collects this run.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if not _lock(descriptor):
                raise LabError(
                    f"run {self.run_id} is being collected by another process",
                    "wait until it has ended",
                )
            yield
        finally:
            os.close(descriptor)


@dataclass(slots=True)
class OpenRun:
    """A run that this process has locked, with what its `run.json` holds.

    Only the process that holds the lock changes `run.json`, so that `info` stays current.

    Attributes:
        directory: Its directory.
        info: The content of its `run.json`.
    """

    directory: RunDir
    info: RunInfo

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
    """Take the lock of a run's directory; False where another process keeps it."""
    give_up = time.monotonic() + _GLANCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                return False
            time.sleep(0.01)
        else:
            return True


def runs_dir(given: str | None) -> Path:
    """Where runs are kept: the flag, `LAB_RUNS_DIR`, or `./runs`.

    Raises:
        InputError: It is there and is no directory.
    """
    path = Path(given or os.environ.get("LAB_RUNS_DIR") or DEFAULT_RUNS_DIR)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is no directory", "name another one with --runs-dir")
    return path


def all_runs(store: Path) -> list[RunDir]:
    """Every run of a run store, oldest first; other directories are skipped.

    Runs whose `run.json` cannot be read come first, since their start is not known.
    """
    return list(infos(store))


def infos(store: Path) -> dict[RunDir, RunInfo | None]:
    """Every run of a run store with its `run.json`, oldest first; None: that cannot be read."""
    if not store.is_dir():
        return {}
    found: dict[RunDir, RunInfo | None] = {}
    for path in store.iterdir():
        run = RunDir(path)
        if run.info_path.is_file():
            try:
                found[run] = run.read()
            except (LabError, OSError):
                found[run] = None

    def begun(run: RunDir) -> tuple[float, str]:
        info = found[run]
        return info.started_unix if info else 0.0, run.run_id

    return {run: found[run] for run in sorted(found, key=begun)}


def before_last(argument: str) -> int | None:
    """The number of runs between the last one and the named one.

    Returns:
        0 of `last`, 1 of `last~1` and so on; None of an id.
    """
    if argument == LAST:
        return 0
    found = _BEFORE_LAST.fullmatch(argument)
    return int(found[1]) if found else None


def resolve(argument: str, ids: list[str], *, where: str) -> str:
    """The run that a user names: its id, a unique beginning of it, `last`, or `last~1`.

    Args:
        argument: What the user typed.
        ids: The ids to choose from, oldest first; for `last` and `last~1`, of runs that started.
        where: Where they are, for the message.

    Raises:
        InputError: No run, or several, fit.
    """
    if not ids:
        raise InputError(f"no run in {where} has started", "start one with `lab run async`")
    back = before_last(argument)
    if back is not None and back >= len(ids):
        raise InputError(f"{argument}: {where} has {counted(len(ids), 'run')}", "see `lab runs`")
    if back is not None:
        return ids[-1 - back]
    if argument in ids:
        return argument
    fitting = [run_id for run_id in ids if run_id.startswith(argument)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        some = ", ".join(fitting[:4])
        raise InputError(f"{argument!r} fits {len(fitting)} runs ({some})", "write more of it")
    raise InputError(f"no run {argument!r} in {where}", "see `lab runs`")


def find_run(argument: str, store: Path) -> RunDir:
    """The run of a run store that a user names.

    Raises:
        InputError: No run, or several, fit.
    """
    ids = [
        run.run_id
        for run, info in infos(store).items()
        if before_last(argument) is None or (info is not None and info.has_started)
    ]
    return RunDir(store / resolve(argument, ids, where=str(store)))


def safe_run_id(run_id: str) -> str:
    """The id itself.

    Raises:
        LabError: It could be no directory's name.
    """
    if not RUN_ID.fullmatch(run_id):
        raise LabError(f"not a run id: {run_id!r}", "remove that request from the run volume")
    return run_id


def read_statuses(
    run: RunDir, info: RunInfo, *, skip_damaged: bool = False
) -> dict[str, TaskStatus]:
    """The status of every task that wrote one.

    Args:
        run: The run.
        info: Its `run.json`.
        skip_damaged: Whether one that cannot be read counts as none; a collection replaces it.

    Raises:
        LabError: One cannot be read; the message names the file and the key.
    """
    found = {}
    for task in info.task_names():
        path = run.status(task)
        try:
            found[task] = convert(parse(read_regular(path)), TaskStatus)
        except FileNotFoundError:
            continue
        except ValueError as error:
            if not skip_damaged:
                fix = f"collect it again with `lab collect {run.run_id}`, or move it away"
                raise LabError(f"{path}: {error}", fix) from error
    return found
