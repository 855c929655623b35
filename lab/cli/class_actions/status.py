"""`lab class status`."""

from __future__ import annotations

import sys

import msgspec
from rich.text import Text

from lab.classroom.status import SeatStatus, seat_statuses
from lab.cli.class_actions import ClassOptions
from lab.cli.class_actions.validate import short_ids
from lab.console import notify, print_json
from lab.formatting import about, whole
from lab.run.tables import Cell, fitting, show, state_cell, terminal_width
from lab.service.classroom import running_class

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


def run(options: ClassOptions) -> None:
    """Print each seat: its container, its GPUs and its newest run."""
    found = seat_statuses(running_class(options.file))
    if options.json:
        print_json(msgspec.to_builtins(found))
    else:
        width = terminal_width(sys.stdout)
        table, left_out = fitting(_COLUMNS, map(_row, found), width=width, give_way=_GIVE_WAY)
        show(table)
        if left_out:
            names = ", ".join(name.lstrip(">") for name in left_out)
            notify(f"not shown at this width: {names}; --json prints all")


def _row(seat: SeatStatus) -> tuple[Cell, ...]:
    run = seat.run
    facts: tuple[Cell, ...] = ("", "", "", "", "")
    if run is not None:
        state = Text("stuck", "bold red") if seat.stuck else state_cell(run.state)
        facts = (run.run_id, state, _ago(run.age_s), whole(run.global_step), _ago(run.since_step_s))
    return (seat.seat, seat.state, short_ids(seat.gpus), _ago(seat.idle_s), *facts)


def _ago(seconds: float | None) -> str:
    return "" if seconds is None else f"{about(seconds)} ago"
