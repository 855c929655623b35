"""`lab class status`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from rich.text import Text

from lab.backends.classroom.protocol import State
from lab.classroom.preparation import running_class
from lab.classroom.queue.folder import Queued, queued
from lab.classroom.remains import read_class
from lab.classroom.status import SeatStatus, seat_statuses
from lab.cli.class_actions import ClassOptions
from lab.cli.class_actions.validate import short_ids
from lab.console import print_json
from lab.formatting import about, whole
from lab.log import LOG
from lab.tables import Cell, fitting, show, state_cell, terminal_width

_COLUMNS = (
    "seat",
    "state",
    "gpus",
    "active",
    "run",
    "run's state",
    ">started",
    ">step",
    ">last step",
)
_GIVE_WAY = ("active", ">started", ">step", "gpus", "run")
"""The columns that a narrow terminal leaves out, in this order."""


_QUEUE_COLUMNS = ("seat", "environment", "state", ">position", "gpus", ">since", ">wait")
_BEFORE_TURN = (State.WAITING, State.GRANTED)
_QUEUE_GIVE_WAY = (">since", "gpus", "environment")


def run(options: ClassOptions) -> None:
    """Print the end of the class, each seat with its GPUs and its newest run, and the queue."""
    folder = running_class(options.file)
    stored, api = read_class(folder)
    times, seats = stored.plan.times, seat_statuses(stored, api)
    queue = queued(folder) if stored.plan.run_networks else None
    if options.json:
        found = {"start": times.start, "end": times.end, "seats": seats, "queue": queue}
        print_json(msgspec.to_builtins(found))
        return
    if times.end:
        LOG.info(f"class {folder.name}: {_end(times.end, datetime.now(times.end.tzinfo))}")
    by_seat = {each.seat: each for each in queue or () if each.state in _BEFORE_TURN}
    left_out = _show(_COLUMNS, (_row(each, by_seat.get(each.seat)) for each in seats), _GIVE_WAY)
    if queue:
        sys.stdout.write("\n")
        left_out += _show(_QUEUE_COLUMNS, map(_queue_row, queue), _QUEUE_GIVE_WAY)
    elif queue is not None:
        LOG.info("the queue is empty")
    if left_out:
        names = ", ".join(dict.fromkeys(name.lstrip(">") for name in left_out))
        LOG.info(f"not shown at this width: {names}; --json prints all")


def _show(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], give_way: Sequence[str]
) -> list[str]:
    """Print a table that fits into the terminal; return the columns that it leaves out."""
    width = terminal_width(sys.stdout)
    table, left_out = fitting(columns, rows, width=width, give_way=give_way)
    show(table)
    return left_out


def _row(seat: SeatStatus, waits: Queued | None) -> tuple[Cell, ...]:
    run = seat.run
    facts: tuple[Cell, ...] = ("", "" if seat.answers else "no answer", "", "", "")
    if waits is not None and (run is None or run.age_s >= waits.since_s):
        # A run of the queue is in the seat's run store before its turn, and says nothing there.
        facts = ("", f"queue: {waits.state}", "", "", "")
    elif run is not None:
        state = Text("stuck", "bold red") if seat.stuck else state_cell(run.state)
        facts = (run.run_id, state, _ago(run.age_s), whole(run.global_step), _ago(run.since_step_s))
    return (seat.seat, seat.state, short_ids(seat.gpus), _ago(seat.idle_s), *facts)


def _queue_row(each: Queued) -> tuple[Cell, ...]:
    wait = "" if each.wait_s is None else about(each.wait_s)
    position = "" if each.position is None else str(each.position)
    gpus = f"needs {each.needs}" if each.position and each.needs else short_ids(each.gpus)
    return (each.seat, each.name, each.state, position, gpus, _ago(each.since_s), wait)


def _end(end: datetime, now: datetime) -> str:
    """Return the end for people: `ends at 12:00, in 35 min`."""
    at = f"{end:%H:%M}" if end.date() == now.date() else f"{end:%Y-%m-%d %H:%M}"
    if end <= now:
        return f"over since {at}"
    return f"ends at {at}, in {about((end - now).total_seconds())}"


def _ago(seconds: float | None) -> str:
    return "" if seconds is None else f"{about(seconds)} ago"
