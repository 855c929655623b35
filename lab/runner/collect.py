"""Collect the files of a run from its run volume into `runs/<id>/`, and pass them to a view.

The collector keeps no state but the collected files: their sizes are the offsets at which it
continues. So it may be killed between any two writes, and the next collector collects every byte
once.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from lab.backends.environment import Environment
from lab.base.errors import LabError
from lab.base.files import atomic_writer
from lab.base.log import LOG
from lab.protocol.records.reader import LineReader
from lab.protocol.volume import Chunk, framing
from lab.protocol.volume.files import REFUSED_S, Patience
from lab.protocol.volume.states import State
from lab.runner import lifecycle
from lab.runner.gpu_metrics import sampled
from lab.runner.lifecycle import DISK_ERRORS, patiently, status_in, task_of
from lab.runner.program_output import PrintedLines
from lab.runner.store.directory import EVENTS_FILE, OpenRun, read_statuses
from lab.runner.store.run_info import Uncollected
from lab.runner.store.summary import Summary
from lab.runner.verdict import all_ended, state_under_way
from lab.runner.view import View

RESERVED: Final = frozenset(
    {
        "run.json",
        "summary.json",
        "summary.csv",
        "gpu.jsonl",
        "report.html",
        "figures",
        "docker-compose.yml",
        "processes.json",
        "containers.json",
        "cluster.sbatch",
        "cluster.k8s.yaml",
        "original",
    }
)
"""Names of files that the client writes; a run's own files must not overwrite them."""

REPLACED: Final = "status"
"""The directory whose files are always collected whole, not by byte offset."""

_AGAIN_S: Final = 0.2
"""Seconds until a stream that broke off is opened again."""


Tick = Callable[[int | None], None]
"""Called at least once a second, with the global step if it is known."""


@dataclass(slots=True)
class Collector:
    """Writes the chunks of one run into its files.

    It keeps the source of a program that is there already. The source on the run volume, which a
    program may have changed, is sent again and compared.

    Attributes:
        root: The run's directory.
        on_append: Receives the path and the new bytes of each file that grew.
        on_replace: Receives the path and the bytes of each file that was sent whole.
        left: The files that could not be collected, by path.
    """

    root: Path
    on_append: Callable[[str, bytes], None] = lambda _path, _data: None
    on_replace: Callable[[str, bytes], None] = lambda _path, _data: None
    left: dict[str, Uncollected] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _folders: set[Path] = field(default_factory=set)
    _source: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._sizes.update(collected_sizes(self.root))
        self._source = {
            path for path in self._sizes if path.startswith("program/") and path.endswith(".py")
        }

    def offsets(self) -> Mapping[str, int]:
        """Return the number of collected bytes of each file, by path."""
        return {path: size for path, size in self._sizes.items() if path not in self._source}

    def accept(self, chunk: Chunk) -> None:
        """Write one chunk; a problem of one file only is recorded in `left`.

        Raises:
            LabError: The bytes before the chunk are missing.
            OSError: The disk is full, or fails.
        """
        path = chunk.path
        if path in self.left:
            return
        if chunk.fault:
            self.left[path] = Uncollected(path, chunk.fault, chunk.kept)
            return
        if not is_safe(path):
            self.left[path] = Uncollected(path, "the name is reserved for lab", kept=True)
            return
        try:
            if path in self._source:
                self._compare(path, chunk.offset or 0, chunk.data)
            elif chunk.offset is None:
                self._replace(path, chunk.data)
            else:
                self._append(path, chunk.offset, chunk.data)
        except OSError as error:
            if error.errno in DISK_ERRORS:
                raise
            reason = (error.strerror or str(error)).lower()
            self.left[path] = Uncollected(path, f"it cannot be written: {reason}", kept=True)

    def _compare(self, path: str, offset: int, data: bytes) -> None:
        with (self.root / path).open("rb") as file:
            file.seek(offset)
            if file.read(framing.MAX_DATA) != data:
                self.left[path] = Uncollected(
                    path, "a program changed it; the submitted one is kept", kept=False
                )

    def _replace(self, path: str, data: bytes) -> None:
        target = self._prepare(path)
        with atomic_writer(target, durable=False) as file:
            file.write(data)
        if PurePosixPath(path).parts[0] != REPLACED:
            self._sizes[path] = len(data)
        self.on_replace(path, data)

    def _append(self, path: str, offset: int, data: bytes) -> None:
        size = self._sizes.get(path, 0)
        if offset > size:
            raise LabError(
                f"{path} of run {self.root.name}: bytes {size} to {offset} are missing",
                f"collect it again with `lab attach {self.root.name}`",
            )
        fresh = data[size - offset :]
        if not fresh and path in self._sizes:
            return
        target = self._prepare(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(target, flags | os.O_NONBLOCK, 0o644), "ab") as file:
            file.write(fresh)
        self._sizes[path] = size + len(fresh)
        self.on_append(path, fresh)

    def _prepare(self, path: str) -> Path:
        target = self.root / path
        if target.parent in self._folders:
            return target
        if not target.parent.resolve().is_relative_to(self.root.resolve()):
            raise OSError(errno.ELOOP, f"{target.parent} links to a directory outside {self.root}")
        target.parent.mkdir(parents=True, exist_ok=True)
        self._folders.add(target.parent)
        return target


def is_safe(path: str) -> bool:
    """Whether a path from a run stays in its directory and overwrites no file of the client."""
    first, name = path.partition("/")[0], path.rpartition("/")[2]
    is_reserved = first.startswith(".") or first in RESERVED or name == EVENTS_FILE
    return framing.is_safe(path) and not is_reserved


def collected_sizes(root: Path) -> dict[str, int]:
    """Return the size of every collected file of a run, by path."""
    sizes = {}
    for folder, folders, names in os.walk(root):
        if Path(folder) == root:
            folders[:] = [name for name in folders if name != REPLACED]
        for name in names:
            file = Path(folder, name)
            path = file.relative_to(root).as_posix()
            with suppress(OSError):
                kind = file.lstat()
                if is_safe(path) and stat.S_ISREG(kind.st_mode):
                    sizes[path] = kind.st_size
    return sizes


class _Feed:
    """Passes collected data to a view, and writes the run's state into `run.json`."""

    def __init__(self, run: OpenRun, view: View) -> None:
        self._run = run
        self._view = view
        self._readers: dict[str, LineReader] = {}
        self.printed = PrintedLines(run.run_id, view.printed, view.report_once)

    def replay(self) -> None:
        """Pass the data that is already collected to the view; the reader keeps half a line."""
        for task in self._run.info.task_names():
            path = self._run.directory.records(task)
            if path.is_file() and not path.is_symlink():
                self._forget(task)  # the view may have received these records before
                with path.open("rb") as file:
                    while data := file.read(1 << 20):
                        self._receive(task, data)
        run = self._run
        for status in read_statuses(run.directory, run.info, skip_damaged=True).values():
            self._view.status(status)

    def append(self, path: str, data: bytes) -> None:
        """Process the new bytes of a file that grew."""
        if task := task_of(path, "logs", ".log"):
            self.printed.feed(task, data)
        if task := task_of(path, "tasks", ".jsonl"):
            self._receive(task, data)

    def replace(self, path: str, data: bytes) -> None:
        """Process the content of a file that was sent whole."""
        if task := task_of(path, "tasks", ".jsonl"):
            # The volume no longer has the earlier content, so the records start again here.
            self._forget(task)
            self.append(path, data)
        if task := task_of(path, "logs", ".log"):
            self.printed.forget(task)
            self.append(path, data)
        if status := status_in(path, data):
            self._view.status(status)
            self._record_state()

    def _forget(self, task: str) -> None:
        self._readers[task] = LineReader()
        self._view.forget(task)

    def _receive(self, task: str, data: bytes) -> None:
        reader = self._readers.setdefault(task, LineReader())
        if records := list(reader.feed(data, self._run.info.times)):
            self._view.records(task, records)

    def _record_state(self) -> None:
        """Write the run's state into `run.json`, but no final state: `finish` writes that."""
        info, statuses = self._run.info, self._view.statuses
        if not info.state.ended and not all_ended(info, statuses):
            state = state_under_way(info, statuses)
            if state is not info.state:
                self._run.update(state=state)

    @property
    def global_step(self) -> int | None:
        """The highest global step of a task's status."""
        steps = (status.global_step for status in self._view.statuses.values())
        return max((step for step in steps if step is not None), default=None)


def collect(
    run: OpenRun,
    environment: Environment,
    view: View,
    *,
    follow: bool = False,
    tick: Tick = lambda _step: None,
    all_sizes: bool = False,
    rest: bool = False,
) -> None:
    """Collect a run.

    Args:
        run: The run in the run store.
        environment: The environment with the run volume.
        view: Receives the collected data.
        follow: Continue until the last task has ended; otherwise collect what is available now.
        tick: Called at least once a second, with the global step if it is known.
        all_sizes: Collect files of any size.
        rest: Collect all files of tasks that wrote no final status because their agents died.

    Raises:
        LabError: The environment no longer runs; the collected data is kept.
        OSError: The disk is full; the collected data is kept.
    """
    run.progress = None
    feed = _Feed(run, view)
    feed.replay()
    collector = Collector(run.directory.path, feed.append, feed.replace)
    for chunk in environment.stream(
        run.run_id, collector.offsets(), follow=follow, all_sizes=all_sizes, rest=rest
    ):
        if chunk is not None:
            collector.accept(chunk)
        view.tick()
        tick(feed.global_step)
    feed.printed.close()
    run.progress = view.progress
    info = run.info
    left = tuple(collector.left.values())
    collected = info.collected or rest or all_ended(info, view.statuses)
    if (left, collected) != (info.left, info.collected):
        run.update(left=left, collected=collected)
        if collected and not any(file.kept for file in left):
            with suppress(LabError):  # without the mark, the run may be collected twice: harmless
                store = run.directory.path.parent.resolve()
                environment.mark_collected(run.run_id, str(store))


def follow(
    run: OpenRun, environment: Environment, view: View, tick: Tick = lambda _step: None
) -> Summary:
    """Collect the run until it ends, sample its GPUs meanwhile, and summarize it.

    If the stream breaks off, or the disk is full, it is tried again.

    A stream passes through one task. If that task ends, the stream breaks off, while other tasks
    may still train. It also breaks off if the run volume cannot be read. Following stops after
    as many seconds without new data as agents wait for a volume. If the environment no longer runs,
    the rest is collected.

    Raises:
        LabError: The stream broke off without new data, or the environment no longer runs although
            its tasks have not recorded their ends.
        OSError: The run store refuses writes; see `patiently`.
    """

    def wait() -> None:
        view.tick()
        tick(None)

    def size() -> int:
        return sum(collected_sizes(run.directory.path).values())

    once = partial(collect, run, environment, view, tick=tick)
    patience = Patience(REFUSED_S, lambda error: LOG.warning(f"{error.what}; trying again"))
    with sampled(run.directory, run.info, view):
        while True:
            try:
                patiently(partial(once, follow=True), wait, size)
                break
            except LabError as error:
                stopped = False
                with suppress(LabError):
                    stopped = lifecycle.has_stopped(environment)
                if stopped:
                    patiently(partial(_collect_rest, run, once, error), wait, size)
                    break
                if patience.fail(error, progress=size()):
                    raise
            wait()
            time.sleep(_AGAIN_S)
    return patiently(partial(lifecycle.finish, run))


def _collect_rest(run: OpenRun, once: Callable[..., None], cause: LabError) -> None:
    """Collect what a run left whose environment no longer runs.

    Raises:
        LabError: `cause`, unless the run's tasks have recorded why they ended.
    """
    LOG.warning(f"{cause.what}; collecting the rest")
    with suppress(LabError):  # the first error names the cause
        once(rest=True)
        if lifecycle.has_ended(run):
            return
    lifecycle.abort(run, State.LOST, cause.what)
    raise LabError(cause.what, f"the collected files are in {run.directory.path}") from cause
