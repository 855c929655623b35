"""What the board shows of a run, and where it comes from: a directory of a run, or a recording.

It is computed from the same data as the live view of a terminal.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from lab.base.formatting import loss, whole
from lab.base.text import short
from lab.protocol.records.reader import STEPS, LineReader, Times, is_number, is_time
from lab.protocol.volume.files import open_regular
from lab.protocol.volume.states import State, run_state
from lab.runner.replay import Player, Recording
from lab.runner.store.directory import RunDir, RunStatus, infos
from lab.runner.store.gpu_samples import use_by_moment
from lab.runner.store.measures import STUCK_S
from lab.runner.store.run_info import RunInfo
from lab.runner.verdict import explain, state_under_way
from lab.runner.view import GPU_FRESH_S, NOW, Clock, View

_MOST_BYTES: Final = 4 << 20  # of a file that are read at once
_LARGEST: Final = 1e300
"""The largest number that a curve shows; the page adds some of them."""

MOST_POINTS: Final = 160
"""The number of points of a curve above which pairs of points become one."""


class Curve:
    """Points over time, thinned as their number grows. Each is the mean of as many values."""

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


class TaskRow(msgspec.Struct, frozen=True):
    """One task on the board, as texts that are safe to show; "" if not known.

    Attributes:
        task: `worker-0`.
        state: Its state.
        stuck: Whether it trains, and has written no record for `STUCK_S`.
        local_step: The number of its own steps.
        steps_per_s: Its local steps per second in the last seconds.
        loss: Its newest loss.
        gpu: The utilisation of its GPUs.
        note: Why it failed, what it waits for, its silence, or the staleness of its gradients.
    """

    task: str
    state: str
    stuck: bool
    local_step: str
    steps_per_s: str
    loss: str
    gpu: str
    note: str


class RunBoard(msgspec.Struct, frozen=True):
    """A run on the board.

    Attributes:
        run: Its id.
        experiment: Its experiment or program.
        state: Its state; `succeeded without worker-1` if it lacks a task at the end.
        reason: Why it failed, or why a task is missing; may be empty.
        elapsed_s: Seconds since its start, or that it took.
        global_step: Its highest global step; "" if not known.
        tasks: Its tasks.
        notes: What the notes of tasks say: `staleness` or `waits`, at the end `note`.
        loss: The loss of each task with one: `[[seconds since the start, loss], …]`.
    """

    run: str
    experiment: str
    state: str
    reason: str
    elapsed_s: float
    global_step: str
    tasks: list[TaskRow]
    notes: str
    loss: Mapping[str, list[tuple[float, float]]]


class BoardView(View):
    """Keeps what a board shows of a run."""

    def __init__(self, info: RunInfo, clock: Clock = NOW) -> None:
        super().__init__(info, clock)
        self._began_unix = info.zero_unix
        self._loss = {task: Curve() for task in self._progress}

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """Receive new records of a task."""
        super().records(task, records)
        for record in records:
            moment, value = record.get("time_unix"), record.get("loss")
            if record.get("kind") not in STEPS or not is_time(moment) or not is_number(value):
                continue
            if abs(value) <= _LARGEST:
                self._loss[task].add(moment - self._began_unix, value)

    def forget(self, task: str) -> None:
        """Forget a task's records: all of them are passed again, from the first."""
        super().forget(task)
        self._loss[task] = Curve()

    @property
    def state(self) -> State:
        """The state of the run, from those of its tasks."""
        return run_state(status.state for status in self._statuses.values())

    def now(self, info: RunInfo, state: State) -> RunBoard:
        """Return the run as it is now.

        Args:
            info: Its `run.json`.
            state: Its state.
        """
        until = (info.stopped_unix if state.ended else None) or self._clock.unix()
        steps = [progress.highest for progress in self._progress.values()]
        missing = [
            task
            for task, status in self._statuses.items()
            if State.SUCCEEDED is state is not status.state and not info.spec.is_service(task)
        ]
        reasons = (f"{task} {explain(self._statuses[task])}" for task in missing)
        return RunBoard(
            run=info.run_id,
            experiment=short(info.spec.experiment),
            state=f"{state} without {', '.join(missing)}" if missing else str(state),
            reason=short(info.reason or ", ".join(reasons)) if state.ended else "",
            elapsed_s=round(max(0.0, until - self._began_unix), 1),
            global_step=whole(max((step for step in steps if step is not None), default=None)),
            tasks=[self._row(task) for task in self._progress],
            notes="note" if state.ended else self._last_title,
            loss={task: curve.points for task, curve in self._loss.items() if curve.points},
        )

    def _row(self, task: str) -> TaskRow:
        status, progress = self._statuses[task], self._progress[task]
        last = progress.last_unix
        is_late = last is not None and self._clock.unix() - last > STUCK_S
        return TaskRow(
            task=task,
            state=str(status.state),
            stuck=status.state is State.TRAINING and is_late,
            local_step=whole(progress.local_step),
            steps_per_s="" if status.state.ended else self._rate(task),
            loss=loss(progress.loss),
            gpu=self._gpu(task),
            note=self._last(task) or short(status.reason),
        )


class _Growing:
    """A file of records that grows; a replaced file is read from its start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: int | None = None
        self._lines, self._read_bytes = LineReader(), 0

    def read(
        self, times: Times, forget: Callable[[], None] = lambda: None
    ) -> Iterator[dict[str, Any]]:
        """Yield the new records; call `forget` before those of a replaced file."""
        try:
            with open_regular(self._path) as file:
                stat = os.fstat(file.fileno())
                if stat.st_ino != self._inode or stat.st_size < self._read_bytes:
                    self._inode = stat.st_ino
                    self._lines, self._read_bytes = LineReader(), 0
                    forget()
                file.seek(self._read_bytes)
                data = file.read(_MOST_BYTES)
        except (OSError, ValueError):  # missing, or no regular file
            return
        self._read_bytes += len(data)
        yield from self._lines.feed(data, times)


class RunFeed:
    """Follows the directory of a run; it reads each record once."""

    def __init__(self, run: RunDir, clock: Clock = NOW) -> None:
        """Follow a run.

        Args:
            run: The run.
            clock: The clock.

        Raises:
            LabError: Its `run.json` cannot be read.
        """
        info = run.read()
        self._run, self._clock = run, clock
        self._view = BoardView(info, clock)
        self._records = {task: _Growing(run.records(task)) for task in info.task_names()}
        self._gpus = _Growing(run.gpu_samples)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run.run_id

    def now(self) -> RunBoard:
        """Return the run as it is now.

        Raises:
            LabError: One of its files cannot be read.
        """
        recorded = RunStatus.recorded(self._run)
        info, statuses = recorded.info, recorded.statuses
        for status in statuses.values():
            self._view.status(status)
        for task, file in self._records.items():
            if records := list(file.read(info.times, partial(self._view.forget, task))):
                self._view.records(task, records)
        for moment, use in use_by_moment(self._gpus.read(info.times)):
            if moment > self._clock.unix() - GPU_FRESH_S:
                self._view.gpus(use)
        ended = info.state.ended
        return self._view.now(info, info.state if ended else state_under_way(info, statuses))


class ReplayFeed:
    """Replays a run that has ended; the first call of `now` starts it."""

    def __init__(self, recording: Recording, speed: float) -> None:
        """Prepare the replay.

        Args:
            recording: The run.
            speed: Seconds of the run in one second.
        """
        self._info = recording.info
        player = Player(recording)
        self._view = BoardView(self._info, player.clock)
        replay = partial(player.play, self._view, speed)
        self._thread = threading.Thread(target=replay, name="lab-replay", daemon=True)

    def now(self) -> RunBoard:
        """Return the run as its client saw it at this moment of the replay."""
        if self._thread.ident is None:
            self._thread.start()
        state = self._view.state if self._thread.is_alive() else self._info.state
        return self._view.now(self._info, state)


class NewestRun:
    """Follows the newest run of a run store, whenever it starts."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._feed: RunFeed | None = None

    def now(self) -> RunBoard | None:
        """Return the newest run as it is now; None if there is no run.

        Raises:
            LabError: Its files cannot be read.
        """
        newest = next(reversed(infos(self._store)), None)
        if newest is None:
            return None
        if self._feed is None or self._feed.run_id != newest.run_id:
            self._feed = RunFeed(newest)
        return self._feed.now()
