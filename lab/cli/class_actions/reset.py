"""`lab class reset SEAT`."""

from __future__ import annotations

from lab.classroom.environment import check_seat, reset
from lab.classroom.preparation import running_class
from lab.classroom.remains import read_class
from lab.cli.class_actions import ClassOptions


def run(options: ClassOptions) -> None:
    """Give a seat its first state again; keep a copy of the student's work."""
    folder = running_class(options.file)
    check_seat(read_class(folder)[0].plan, options.seat)
    options.confirm(f"reset {options.seat}? A copy of its work is kept.")
    reset(folder, options.seat)
