"""Follows runs for the board: in their directories as a client collects them, or as replays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from lab.board.run_view import BoardView, RunBoard
from lab.records.reader import LineReader, Times
from lab.run.replay import Player, Recording
from lab.run.state import state_under_way
from lab.run.view import GPU_FRESH_S, NOW, Clock
from lab.store.directory import RunDir, RunStatus, infos
from lab.store.gpu_samples import use_by_moment
from lab.volume.files import open_regular

_MOST_BYTES: Final = 4 << 20  # of a file that are read at once


class _Growing:
    """A file of records that grows; one that is replaced is read anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: int | None = None
        self._lines, self._read_bytes = LineReader(), 0

    def read(
        self, times: Times, forget: Callable[[], None] = lambda: None
    ) -> Iterator[dict[str, Any]]:
        """Yield the new records; call a function before those of a replaced file."""
        try:
            with open_regular(self._path) as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._read_bytes:
                    self._inode = found.st_ino
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
            LabError: A file of it cannot be read.
        """
        found = RunStatus.recorded(self._run)
        info = found.info
        for status in found.statuses.values():
            self._view.status(status)
        for task, file in self._records.items():
            if records := list(file.read(info.times, partial(self._view.forget, task))):
                self._view.records(task, records)
        for moment, use in use_by_moment(self._gpus.read(info.times)):
            if moment > self._clock.unix() - GPU_FRESH_S:
                self._view.gpus(use)
        ended = info.state.ended
        return self._view.now(info, info.state if ended else state_under_way(info, found.statuses))


class ReplayFeed:
    """Plays a run that has ended, from the first look at it on."""

    def __init__(self, recording: Recording, speed: float) -> None:
        """Prepare the replay.

        Args:
            recording: The run.
            speed: Seconds of the run in one second.
        """
        self._recording, self._speed = recording, speed
        self._player = Player(recording)
        self._view = BoardView(recording.info, self._player.clock)
        self._thread = threading.Thread(target=self._play, name="lab-replay", daemon=True)

    def _play(self) -> None:
        self._player.play(self._view, self._speed)

    def now(self) -> RunBoard:
        """Return the run as its client saw it at this moment of the replay."""
        if self._thread.ident is None:
            self._thread.start()
        info, note = self._recording.info, f"A replay, at speed {self._speed:g}."
        if self._thread.is_alive():
            return self._view.now(info, self._view.state, note)
        return self._view.now(info, info.state, note)


class NewestRun:
    """Follows the newest run of a run store, whenever it starts."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._feed: RunFeed | None = None

    def now(self) -> RunBoard | None:
        """Return the newest run as it is now; None: there is no run.

        Raises:
            LabError: Its files cannot be read.
        """
        newest = next(reversed(infos(self._store)), None)
        if newest is None:
            return None
        if self._feed is None or self._feed.run_id != newest.run_id:
            self._feed = RunFeed(newest)
        return self._feed.now()
