"""The actions of `lab class`, a function for each with the options that it takes; their tables."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from itertools import zip_longest
from pathlib import Path
from time import time as now
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from lab.base.console import confirm, print_json
from lab.base.errors import ConfigError, InputError
from lab.base.formatting import about, counted, whole
from lab.base.log import LOG
from lab.base.tables import Cell, fitting, show, table_of, terminal_width
from lab.base.text import visible
from lab.base.units import memory_for_people
from lab.runner.result_table import state_cell
from lab.teach.classroom.class_dir import changed_end, write_private
from lab.teach.classroom.planning import ClassPlan, SeatPlan
from lab.teach.classroom.preparation import boot, plan_from, running_class

if TYPE_CHECKING:
    from lab.teach.classroom.gradebook import Entry
    from lab.teach.classroom.queue.host import Queued
    from lab.teach.classroom.seat_status import SeatStatus


def validate(file: Path, *, gpus: str | int, json: bool) -> None:
    """Check a class config and this host; print what seats, the proxy and active runs get."""
    try:
        plan = plan_from(file, gpus)
    except ConfigError as error:
        if json:
            print_json({"file": str(file), "valid": False, "problems": error.problems})
        raise
    if json:
        print_json({"file": str(file), "valid": True, "problems": [], **plan.to_json()})
        return
    show(table_of(_PLAN_COLUMNS, [*map(_plan_row, plan.seats), *_other_rows(plan)]))
    for notice in plan.notices:
        LOG.info(notice)
    LOG.info(f"{file}: valid: {plan.name}, {counted(len(plan.seats), 'seat')}")


def up(file: Path) -> None:
    """Boot a class, and print where to go on."""
    plan = boot(file)
    LOG.info(f"class {plan.name}: {counted(len(plan.seats), 'seat')} at {plan.url}")
    LOG.info("print the passwords with `lab class handouts`; see the seats with `lab class status`")


def status(file: Path, *, json: bool) -> None:
    """Print the end of the class, each seat with its GPUs and its newest run, and the queue."""
    from lab.teach.classroom.queue.host import queued  # noqa: PLC0415  (docker-py)
    from lab.teach.classroom.seat_status import seat_statuses  # noqa: PLC0415

    folder = running_class(file)
    seats, queue = seat_statuses(folder), queued(folder)
    end = _local(folder.end())
    if json:
        print_json(msgspec.to_builtins({"end": end, "seats": seats, "queue": queue}))
        return
    if end:
        LOG.info(f"class {folder.name}: {when_ends(end)}")
    show_seats(seats, queue)


def time(file: Path, *, of: str, json: bool) -> None:
    """Print the time left of the class; or change its end, and print that."""
    folder = running_class(file)
    if of:
        extends = of.startswith("+")  # otherwise, the file may be damaged
        folder.set_end(changed_end(of, folder.end() if extends else None, now()))
    end = folder.end()
    at, left_s = _local(end), None if end is None else max(0.0, end - now())
    if json:
        print_json(msgspec.to_builtins({"end": at, "left_s": left_s}))
        return
    when = when_ends(at) if at else "has no end"
    sys.stdout.write(f"the class {when}\n")


def _local(time_unix: float | None) -> datetime | None:
    return None if time_unix is None else datetime.fromtimestamp(time_unix).astimezone()


def board(file: Path, *, port: int | None) -> None:
    """Show the seats, their stages, the queue and the time left as a page, until Ctrl-C."""
    from lab.teach.board.class_feed import ClassFeed  # noqa: PLC0415  (docker-py)
    from lab.teach.board.server import PORT, encoded, serve  # noqa: PLC0415

    feed = ClassFeed(running_class(file))
    asyncio.run(serve(partial(encoded, "class", feed), port or PORT))


def handouts(file: Path, *, output: str | None) -> None:
    """Write a page with a handout for each seat, to print."""
    from lab.teach.classroom.handouts import write_handouts  # noqa: PLC0415  (segno)

    folder = running_class(file)
    page = Path(output or f"{folder.name}-handouts.html")
    write_handouts(folder, page)
    if line := folder.stored().plan.reach:
        LOG.info(line)
    LOG.info(f"print {page}, and then delete it: it has the password of every seat")


def reset(file: Path, *, of: str, yes: bool) -> None:
    """Give a seat its first state again; keep a copy of the student's work."""
    from lab.teach.classroom import up_down  # noqa: PLC0415  (docker-py)

    folder = running_class(file)
    up_down.check_seat(folder.stored().plan, of)
    if not yes:
        confirm(f"reset {of}? A copy of its work is kept.")
    up_down.reset(folder, of)


def down(file: Path, *, output: str | None, yes: bool) -> None:
    """Collect the work of every seat, then remove the class."""
    from lab.teach.classroom import up_down  # noqa: PLC0415  (docker-py)

    folder = running_class(file)
    if not yes:
        confirm(f"remove the class {folder.name!r}? Its work is collected first.")
    default = f"{folder.name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.zip"
    up_down.down(folder, Path(output or default))


def gradebook(_file: Path, *, of: str, output: str | None, json: bool) -> None:
    """Print, or write, which stages of the lessons each seat has passed."""
    from lab.teach.classroom.gradebook import as_csv, read_gradebook  # noqa: PLC0415

    if not of:
        raise InputError("no archive is given", "name the file that `lab class down` wrote")
    entries = read_gradebook(Path(of))
    if json:
        print_json([asdict(entry) for entry in entries])
    elif output:
        write_private(Path(output), as_csv(entries))
        LOG.info(f"{output}: {counted(len(entries), 'row')}")
    else:
        show_gradebook(entries)


_PLAN_COLUMNS = ("seat", "gpus", "network", ">cpus", ">memory", ">disk")
_SEAT_COLUMNS = (
    "seat",
    "state",
    "gpus",
    "run",
    "run's state",
    ">started",
    ">step",
    ">last step",
    "stages passed",
)
_SEAT_GIVE_WAY = ("stages passed", ">started", ">step", "gpus", "run")
"""The columns that a narrow terminal leaves out, in this order."""

_QUEUE_COLUMNS = ("seat", "state", ">position", "gpus", ">since")
_QUEUE_GIVE_WAY = (">since", "gpus")
_BEFORE_TURN = ("waiting", "granted")
_ID = 12  # characters of a UUID: `GPU-5e3f1a09`


def _plan_row(seat: SeatPlan) -> tuple[str, ...]:
    return (
        seat.name,
        _short(seat.gpus),
        str(seat.network),
        "" if seat.cpus is None else f"{seat.cpus:g}",
        "" if seat.memory_bytes is None else memory_for_people(seat.memory_bytes),
        "" if seat.disk_bytes is None else memory_for_people(seat.disk_bytes),
    )


def _other_rows(plan: ClassPlan) -> Iterator[tuple[str, ...]]:
    yield "(proxy)", "", str(plan.proxy_network), "", "", ""
    for gpu, network in zip_longest(plan.queue_gpus, plan.run_networks, fillvalue=""):
        yield "(queue)", str(gpu)[:_ID] or "none", str(network), "", "", ""


def show_seats(seats: Sequence[SeatStatus], queue: Sequence[Queued] | None) -> None:
    """Print the seats, and the queue if the class has one; name the columns that do not fit."""
    waiting = {each.seat: each for each in queue or () if each.state in _BEFORE_TURN}
    rows = [_seat_row(each, waiting.get(each.seat)) for each in seats]
    left_out = _show(_SEAT_COLUMNS, rows, _SEAT_GIVE_WAY)
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


def _seat_row(seat: SeatStatus, waits: Queued | None) -> tuple[Cell, ...]:
    run = seat.run
    facts: tuple[Cell, ...] = ("", "" if seat.answers else "no answer", "", "", "")
    if waits is not None and (run is None or run.age_s >= waits.since_s):
        # A run of the queue is in the seat's run store before its turn, and says nothing there.
        facts = ("", f"queue: {waits.state}", "", "", "")
    elif run is not None:
        state = Text("stuck", "bold red") if seat.stuck else state_cell(run.state)
        facts = (run.run_id, state, _ago(run.age_s), whole(run.global_step), _ago(run.since_step_s))
    passed = ", ".join(f"{name} {n} of {of}" for name, (n, of) in seat.passed.items() if n)
    return (seat.seat, seat.state, _short(seat.gpus), *facts, passed)


def _queue_row(each: Queued) -> tuple[Cell, ...]:
    position = "" if each.position is None else str(each.position)
    gpus = f"needs {each.needs}" if each.position and each.needs else _short(each.gpus)
    return (each.seat, each.state, position, gpus, _ago(each.since_s))


def when_ends(end: datetime) -> str:
    """Return the end of a class for people: `ends at 12:00, in 35 min`."""
    now = datetime.now(end.tzinfo)
    at = f"{end:%H:%M}" if end.date() == now.date() else f"{end:%Y-%m-%d %H:%M}"
    if end <= now:
        return f"ended at {at}"
    return f"ends at {at}, in {about((end - now).total_seconds())}"


def _ago(seconds: float | None) -> str:
    return "" if seconds is None else f"{about(seconds)} ago"


def _short(ids: Sequence[str]) -> str:
    """The beginnings of UUIDs."""
    return " ".join(each[:_ID] for each in ids) or "none"


def show_gradebook(entries: Sequence[Entry]) -> None:
    """Print for each seat and lesson with runs or answers how many stages are passed."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.seat, entry.lesson), []).append(entry)
    table = table_of(("seat", "lesson", ">stages passed", ">answers typed", "last passed"))
    for (seat, lesson), stages in groups.items():
        passed = sum(each.passed for each in stages)
        done = Text(f"{passed} of {len(stages)}", "green" if passed == len(stages) else "")
        answers = str(sum(each.answers for each in stages))
        table.add_row(visible(seat), lesson, done, answers, _minute(max(e.when for e in stages)))
    show(table)


def _minute(when: str) -> str:
    """Return a time as people write it, here."""
    return f"{datetime.fromisoformat(when).astimezone():%Y-%m-%d %H:%M}" if when else ""
