"""What the board shows of a run, read from its directory as a client collects it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from lab.records.reader import STEPS, LineReader, is_number
from lab.run.state import state_under_way
from lab.run.view import GPU_FRESH_S
from lab.store.directory import RunDir, RunStatus
from lab.store.gpu_samples import GpuSample, samples
from lab.store.progress import TaskProgress
from lab.store.run_info import RunInfo
from lab.text import short
from lab.volume import TaskStatus
from lab.volume.states import State

MOST_POINTS: Final = 160
"""The number of points of a curve above which every second point is left out."""

STUCK_S: Final = 10.0
"""Seconds without a record after which a training task is shown as stuck."""

_MOST_BYTES: Final = 4 << 20  # of a file that are read at once


class Curve:
    """Points over time, thinned as they become many. Each keeps the mean of what it stands for."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._each = 1
        self._sum = 0.0
        self._count = 0

    def add(self, at_s: float, value: float) -> None:
        """Add a value at a time in seconds."""
        self._sum += value
        self._count += 1
        if self._count < self._each:
            return
        self.points.append((round(at_s, 2), float(f"{self._sum / self._count:.5g}")))
        self._sum, self._count = 0.0, 0
        if len(self.points) > MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=False)
            self.points = [(late, float(f"{(a + b) / 2:.5g}")) for (_, a), (late, b) in pairs]
            self._each *= 2


class _Growing:
    """A file of records that grows; one that is replaced is read anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: int | None = None
        self._lines, self._read_bytes = LineReader(), 0

    def read(self, forget: Callable[[], None]) -> Iterator[dict[str, Any]]:
        """Yield the new records; call a function before those of a replaced file."""
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._read_bytes:
                    self._inode = found.st_ino
                    self._lines, self._read_bytes = LineReader(), 0
                    forget()
                file.seek(self._read_bytes)
                data = file.read(_MOST_BYTES)
        except OSError:
            return
        self._read_bytes += len(data)
        yield from self._lines.feed(data)


class _Task:
    """What the records of a task say so far."""

    def __init__(self, task: str, path: Path, began_unix: float) -> None:
        self._task, self._file, self._began_unix = task, _Growing(path), began_unix
        self._forget()

    def _forget(self) -> None:
        self.progress, self.loss = TaskProgress(self._task), Curve()

    def update(self) -> None:
        """Read what is new."""
        for record in self._file.read(self._forget):
            self.progress.add(record)
            moment, loss = record.get("time_unix"), _finite(record.get("loss"))
            if record.get("kind") in STEPS and is_number(moment) and loss is not None:
                self.loss.add(moment - self._began_unix, loss)


class _Gpus:
    """The newest sample of each GPU of each task."""

    def __init__(self, path: Path) -> None:
        self._file = _Growing(path)
        self.newest: dict[tuple[str, str], GpuSample] = {}

    def update(self) -> None:
        """Read what is new."""
        for sample in samples(self._file.read(self.newest.clear)):
            self.newest[sample.task, sample.gpu] = sample


class TaskRow(msgspec.Struct, frozen=True):
    """One task on the board; None: not known yet.

    Attributes:
        task: `worker-0`.
        state: Its state.
        stuck: Whether it trains, and has written no record for `STUCK_S`.
        since_s: Seconds since its newest record.
        local_step: The number of its own steps.
        global_step: The newest global step in its records.
        loss: Its newest loss.
        steps_per_s: Its local steps per second.
        staleness: The newest staleness, in updates by other workers.
        gpu: The utilisation of its GPUs, from 0 to 1.
        note: Its newest message, or why it failed.
    """

    task: str
    state: str
    stuck: bool
    since_s: float | None
    local_step: int | None
    global_step: int | None
    loss: float | None
    steps_per_s: float | None
    staleness: int | None
    gpu: float | None
    note: str


class RunBoard(msgspec.Struct, frozen=True):
    """A run on the board.

    Attributes:
        run: Its id.
        experiment: Its experiment or program.
        state: Its state.
        ended: Whether it has ended.
        reason: The reason for this state; may be empty.
        elapsed_s: Seconds since its start, or that it took.
        global_step: Its highest global step, or None.
        tasks: Its tasks.
        loss: The loss of each task with one: `[[seconds since the start, loss], …]`.
    """

    run: str
    experiment: str
    state: str
    ended: bool
    reason: str
    elapsed_s: float
    global_step: int | None
    tasks: list[TaskRow]
    loss: Mapping[str, list[tuple[float, float]]]


class RunFeed:
    """Follows the directory of a run; it reads each record once."""

    def __init__(self, run: RunDir, clock: Callable[[], float] = time.time) -> None:
        """Follow a run.

        Args:
            run: The run.
            clock: The time, in seconds since the epoch.

        Raises:
            LabError: Its `run.json` cannot be read.
        """
        self._run, self._clock = run, clock
        info = run.read()
        began = info.zero_unix
        self._gpu_records = _Gpus(run.gpu_samples)
        self._tasks = {name: _Task(name, run.records(name), began) for name in info.task_names()}

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run.run_id

    def now(self) -> RunBoard:
        """Return the run as it is now.

        Raises:
            LabError: A file of it cannot be read.
        """
        status = RunStatus.recorded(self._run)
        info, statuses = status.info, status.statuses
        for each in self._tasks.values():
            each.update()
        gpus = self._gpus()
        rows = [self._row(name, statuses.get(name), gpus.get(name)) for name in self._tasks]
        steps = [each.progress.highest for each in self._tasks.values()]
        ended = info.state.ended
        return RunBoard(
            run=info.run_id,
            experiment=short(info.spec.experiment),
            state=str(info.state if ended else state_under_way(info, statuses)),
            ended=ended,
            reason=short(info.reason),
            elapsed_s=round(max(0.0, self._until(info) - info.started_unix), 1),
            global_step=max((step for step in steps if step is not None), default=None),
            tasks=rows,
            loss={name: task.loss.points for name, task in self._tasks.items() if task.loss.points},
        )

    def _gpus(self) -> dict[str, float]:
        """Return the newest utilisation of each task's GPUs, if it is not old."""
        self._gpu_records.update()
        oldest = self._clock() - GPU_FRESH_S
        fresh = (each for each in self._gpu_records.newest.values() if each.time_unix >= oldest)
        found: dict[str, list[float]] = {}
        for sample in fresh:
            if sample.utilisation is not None:
                found.setdefault(sample.task, []).append(sample.utilisation)
        return {task: round(sum(shares) / len(shares), 2) for task, shares in found.items()}

    def _until(self, info: RunInfo) -> float:
        return (info.stopped_unix or info.started_unix) if info.state.ended else self._clock()

    def _row(self, name: str, status: TaskStatus | None, gpu: float | None) -> TaskRow:
        progress = self._tasks[name].progress
        state = status.state if status else State.PENDING
        last = progress.last_unix
        since = None if last is None or state.ended else max(0.0, self._clock() - last)
        rate = progress.steps_per_s
        return TaskRow(
            task=name,
            state=str(state),
            stuck=state is State.TRAINING and (since or 0.0) > STUCK_S,
            since_s=None if since is None else round(since),
            local_step=progress.local_step,
            global_step=progress.global_step,
            loss=_finite(progress.loss),
            steps_per_s=None if rate is None else float(f"{rate:.3g}"),
            staleness=progress.staleness,
            gpu=gpu,
            note=short(status.reason or status.message if status else ""),
        )


def _finite(value: object) -> float | None:
    """Return a number that JSON has: no NaN, and not infinite."""
    return float(f"{value:.5g}") if is_number(value) and math.isfinite(value) else None
