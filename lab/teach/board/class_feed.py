"""What the board shows of a class: its seats, which of them are stuck, the queue, the time left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from lab.base.formatting import about, counted, whole
from lab.base.text import short
from lab.teach.classroom.class_dir import ClassDir
from lab.teach.classroom.protocol import State
from lab.teach.classroom.queue.host import Queued, queued
from lab.teach.classroom.seat_status import SeatStatus, seat_statuses

EVERY_S: Final = 15.0
"""Seconds between two requests to all seats: each starts a process in every seat."""


class SeatRow(msgspec.Struct, frozen=True):
    """A seat on the board, as texts that are safe to show; "" if not known.

    Attributes:
        seat: The seat.
        state: The state of its newest run, `no run yet`, or why it has none: `training`,
            `stuck for 2 min`, `stopped`, `no answer`.
        stuck: Whether this run makes no progress.
        run: The experiment of this run.
        step: Its highest global step.
        passed: The number of passed stages of each lesson: `async 2 of 3`.
    """

    seat: str
    state: str
    stuck: bool
    run: str
    step: str
    passed: str


class ClassBoard(msgspec.Struct, frozen=True):
    """A class on the board.

    Attributes:
        name: Its name.
        ends_unix: Its end, in seconds since the epoch; None without one.
        queue: What waits or has GPUs, in order: `seat-03: waiting, position 1`.
        seats: Its seats, in the plan's order.
    """

    name: str
    ends_unix: float | None
    queue: list[str]
    seats: list[SeatRow]


class ClassFeed:
    """Asks a class for its status, at most once in `EVERY_S`."""

    def __init__(self, folder: ClassDir, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Follow a class that is up.

        Args:
            folder: The class.
            monotonic: A clock, in seconds.
        """
        self._folder, self._monotonic = folder, monotonic
        self._asked, self._shown = -EVERY_S, ClassBoard(folder.name, None, [], [])

    def now(self) -> ClassBoard:
        """Return the class as it was a few seconds ago, with its current end.

        Raises:
            LabError: The class cannot be read, or the engine does not answer.
        """
        if self._monotonic() - self._asked >= EVERY_S:
            self._shown = ClassBoard(
                name=self._folder.name,
                ends_unix=None,
                queue=[_line(entry) for entry in queued(self._folder) or []],
                seats=[_row(seat) for seat in seat_statuses(self._folder)],
            )
            self._asked = self._monotonic()
        return msgspec.structs.replace(self._shown, ends_unix=self._folder.end())


def _line(entry: Queued) -> str:
    state = entry.state
    if entry.position is not None:
        state = f"waiting, position {entry.position}"
    elif entry.state == State.UP:
        state = f"running for {about(entry.since_s)}"
    gpus = f", {counted(len(entry.gpus), 'GPU')}" if entry.gpus else ""
    return f"{entry.seat}: {state}{gpus}"


def _row(seat: SeatStatus) -> SeatRow:
    run = seat.run
    passed = (f"{short(name)} {n} of {of}" for name, (n, of) in seat.passed.items() if n)
    return SeatRow(
        seat=seat.seat,
        state=_state(seat),
        stuck=seat.stuck,
        run=short(run.experiment) if run else "",
        step=whole(run.global_step) if run else "",
        passed=", ".join(passed),
    )


def _state(seat: SeatStatus) -> str:
    run = seat.run
    if not seat.answers:
        return "no answer"
    if seat.state != "ready":
        return seat.state
    if run is None:
        return "no run yet"
    if seat.stuck and run.since_step_s is not None:
        return f"stuck for {about(run.since_step_s)}"
    return short(run.state)
