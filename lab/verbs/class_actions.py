"""The actions of `lab class`, a function for each with the options that it takes; their results."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from itertools import zip_longest
from pathlib import Path
from time import time as now
from typing import TYPE_CHECKING, Any

import msgspec
from rich.table import Table
from rich.text import Text

from lab.base.console import confirm
from lab.base.errors import InputError
from lab.base.formatting import about, counted, whole
from lab.base.tables import Cell, fitting, table_of, terminal_width
from lab.base.units import memory_for_people
from lab.runner.result_table import state_cell
from lab.teach.classroom.class_dir import changed_end, write_private
from lab.teach.classroom.planning import ClassPlan, SeatPlan
from lab.teach.classroom.preparation import boot, plan_from, running_class
from lab.verbs.printing import Note, Said, Shown, Tabular

if TYPE_CHECKING:
    from lab.teach.classroom.gradebook import Entry
    from lab.teach.classroom.queue.host import Queued
    from lab.teach.classroom.seat_status import SeatStatus


@dataclass(frozen=True, slots=True, repr=False)
class Planned(Shown):
    """A class config without errors, and what it gets on a host."""

    file: Path
    plan: ClassPlan

    def to_json(self) -> dict[str, Any]:
        """Return all of it as a JSON value."""
        plan = Shown.to_json(self)["plan"]
        return {"file": str(self.file), "valid": True, "problems": [], **plan}

    def _shown(self) -> Iterator[Table | str]:
        plan = self.plan
        yield table_of(_PLAN_COLUMNS, [*map(_plan_row, plan.seats), *_other_rows(plan)])
        yield from map(Note, plan.notices)
        yield Note(f"{self.file}: valid: {plan.name}, {counted(len(plan.seats), 'seat')}")


def validate(file: Path, *, gpus: str | int) -> Planned:
    """Check a class config and this host; return what seats, the proxy and active runs get."""
    return Planned(file, plan_from(file, gpus))


@dataclass(frozen=True, slots=True, repr=False)
class Up(Shown):
    """A class that is up."""

    name: str
    seats: int
    url: str

    def _shown(self) -> Iterator[Note]:
        yield Note(f"class {self.name}: {counted(self.seats, 'seat')} at {self.url}")
        yield Note(
            "print the passwords with `lab class handouts`; see the seats with `lab class status`"
        )


def up(file: Path) -> Up:
    """Boot a class."""
    plan = boot(file)
    return Up(plan.name, len(plan.seats), plan.url)


@dataclass(frozen=True, slots=True, repr=False)
class Status(Shown):
    """The end of a class, each seat with its GPUs and its newest run, and the queue.

    Attributes:
        name: The class.
        end: Its end; None: it has none.
        seats: The seats.
        queue: Who waits for GPUs; None: the class has no queue.
    """

    name: str
    end: datetime | None
    seats: Sequence[SeatStatus]
    queue: Sequence[Queued] | None

    def to_json(self) -> Any:  # noqa: ANN401  (an object)
        """Return all of it as a JSON value."""
        return msgspec.to_builtins({"end": self.end, "seats": self.seats, "queue": self.queue})

    def _shown(self) -> Iterator[Table | str]:
        """Yield tables that fit the terminal, and the names of the columns that do not."""
        if self.end:
            yield Note(f"class {self.name}: {when_ends(self.end)}")
        width = terminal_width(sys.stdout)
        waiting = {each.seat: each for each in self.queue or () if each.state in _BEFORE_TURN}
        rows = [_seat_row(each, waiting.get(each.seat)) for each in self.seats]
        table, left_out = fitting(_SEAT_COLUMNS, rows, width=width, give_way=_SEAT_GIVE_WAY)
        yield table
        if self.queue:
            rows = [*map(_queue_row, self.queue)]
            table, more = fitting(_QUEUE_COLUMNS, rows, width=width, give_way=_QUEUE_GIVE_WAY)
            yield from ("", table)
            left_out += more
        elif self.queue is not None:
            yield Note("the queue is empty")
        if left_out:
            names = ", ".join(dict.fromkeys(name.lstrip(">") for name in left_out))
            yield Note(f"hidden at this width: {names}; --json prints all")


def status(file: Path) -> Status:
    """Return the end of the class, the seats, and the queue."""
    from lab.teach.classroom.queue.host import queued  # noqa: PLC0415  (docker-py)
    from lab.teach.classroom.seat_status import seat_statuses  # noqa: PLC0415

    folder = running_class(file)
    return Status(folder.name, _local(folder.end()), seat_statuses(folder), queued(folder))


@dataclass(frozen=True, slots=True, repr=False)
class Time(Shown):
    """The end of a class, and the seconds until then; None: it has no end."""

    end: datetime | None
    left_s: float | None

    def _shown(self) -> Iterator[str]:
        yield f"the class {when_ends(self.end) if self.end else 'has no end'}"


def time(file: Path, *, of: str) -> Time:
    """Return the time left of the class; or change its end, and return that."""
    folder = running_class(file)
    if of:
        extends = of.startswith("+")  # otherwise, the file may be damaged
        folder.set_end(changed_end(of, folder.end() if extends else None, now()))
    end = folder.end()
    return Time(_local(end), None if end is None else max(0.0, end - now()))


def _local(time_unix: float | None) -> datetime | None:
    return None if time_unix is None else datetime.fromtimestamp(time_unix).astimezone()


def board(file: Path, *, port: int | None) -> None:
    """Show the seats, their stages, the queue and the time left as a page, until Ctrl-C."""
    from lab.teach.board.class_feed import ClassFeed  # noqa: PLC0415  (docker-py)
    from lab.teach.board.server import PORT, encoded, serve  # noqa: PLC0415

    feed = ClassFeed(running_class(file))
    asyncio.run(serve(partial(encoded, "class", feed), port or PORT))


@dataclass(frozen=True, slots=True, repr=False)
class Handouts(Shown):
    """A page with a handout for each seat, and how browsers reach the class."""

    page: Path
    reach: str

    def _shown(self) -> Iterator[Note]:
        if self.reach:
            yield Note(self.reach)
        yield Note(f"print {self.page}, then delete it: it contains the password of every seat")


def handouts(file: Path, *, output: str | None) -> Handouts:
    """Write a page with a handout for each seat, to print."""
    from lab.teach.classroom.handouts import write_handouts  # noqa: PLC0415  (segno)

    folder = running_class(file)
    page = Path(output or f"{folder.name}-handouts.html")
    write_handouts(folder, page)
    return Handouts(page, folder.stored().plan.reach)


@dataclass(frozen=True, slots=True, repr=False)
class Reset(Said):
    """A seat in its first state."""

    seat: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.seat}: reset"


def reset(file: Path, *, of: str, yes: bool) -> Reset:
    """Reset a seat, and keep a copy of the student's work."""
    from lab.teach.classroom import up_down  # noqa: PLC0415  (docker-py)

    folder = running_class(file)
    up_down.check_seat(folder.stored().plan, of)
    if not yes:
        confirm(f"reset {of}? A copy of its work is kept.")
    up_down.reset(folder, of)
    return Reset(of)


@dataclass(frozen=True, slots=True, repr=False)
class Ended(Said):
    """A class that was removed, and the archive with the work of its seats."""

    name: str
    archive: Path

    def _shown(self) -> Iterator[str]:
        yield f"class {self.name}: removed; the work of its seats is in {self.archive}"


def down(file: Path, *, output: str | None, yes: bool) -> Ended:
    """Collect the work of every seat, then remove the class."""
    from lab.teach.classroom import up_down  # noqa: PLC0415  (docker-py)

    folder = running_class(file)
    if not yes:
        confirm(f"remove the class {folder.name!r}? Its work is collected first.")
    archive = Path(output or f"{folder.name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.zip")
    up_down.down(folder, archive)
    return Ended(folder.name, archive)


@dataclass(frozen=True, slots=True, repr=False)
class Gradebook(Tabular):
    """Which stages of the lessons each seat has passed.

    Attributes:
        entries: A stage of a lesson in a seat.
        output: The file that has them; None: there is none.
        grades: The table for a learning platform; "" for none.
    """

    entries: Sequence[Entry]
    output: str | None
    grades: str

    def to_json(self) -> list[dict[str, Any]]:
        """Return the entries."""
        return [asdict(entry) for entry in self.entries]

    def _shown(self) -> Iterator[Table | str]:
        """Yield the table for a platform, or how many stages of each lesson a seat has passed."""
        from lab.teach.classroom.gradebook import by_lesson  # noqa: PLC0415

        if self.output:
            seats = len({entry.seat for entry in self.entries})
            rows = counted(seats, "seat") if self.grades else counted(len(self.entries), "row")
            yield Note(f"{self.output}: {rows}")
            return
        if self.grades:
            yield self.grades.removesuffix("\n")
            return
        table = table_of(("seat", "lesson", ">stages passed", ">answers typed", "last passed"))
        for (seat, lesson), stages in by_lesson(self.entries):
            passed = sum(each.passed for each in stages)
            done = Text(f"{passed} of {len(stages)}", "green" if passed == len(stages) else "")
            answers = str(sum(each.answers for each in stages))
            last = _minute(max(each.when for each in stages))
            table.add_row(seat, lesson, done, answers, last)
        yield table


def gradebook(_file: Path, *, of: str, output: str | None, for_: str | None) -> Gradebook:
    """Return, and perhaps write, which stages of the lessons each seat has passed."""
    from lab.teach.classroom.gradebook import as_csv, as_grades, read_gradebook  # noqa: PLC0415

    if not of:
        raise InputError("no archive given", "name the file that `lab class down` wrote")
    entries = read_gradebook(Path(of))
    grades = as_grades(entries, for_) if for_ else ""
    if output:
        write_private(Path(output), grades or as_csv(entries))
    return Gradebook(entries, output, grades)


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


def _minute(when: str) -> str:
    """Return a time as people write it, here."""
    return f"{datetime.fromisoformat(when).astimezone():%Y-%m-%d %H:%M}" if when else ""
