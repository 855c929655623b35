"""The actions of `lab class`: the function of the action's name, with the options that it takes."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from time import time as now

import msgspec

from lab.classroom.preparation import boot, plan_from, running_class
from lab.classroom.state import changed_end, write_private
from lab.cli import class_tables
from lab.console import confirm, print_json
from lab.errors import ConfigError, InputError
from lab.formatting import counted
from lab.log import LOG


def validate(file: Path, *, gpus: str | int, json: bool) -> None:
    """Check a class config and this host, and print what each seat gets."""
    try:
        plan = plan_from(file, gpus)
    except ConfigError as error:
        if json:
            print_json({"file": str(file), "valid": False, "problems": error.problems})
        raise
    if json:
        print_json({"file": str(file), "valid": True, "problems": [], **plan.to_json()})
        return
    class_tables.show_plan(plan)
    LOG.info(f"{file}: valid: {plan.name}, {counted(len(plan.seats), 'seat')}")


def up(file: Path) -> None:
    """Boot a class, and print where to go on."""
    plan = boot(file)
    LOG.info(f"class {plan.name}: {counted(len(plan.seats), 'seat')} at {plan.url}")
    LOG.info("print the passwords with `lab class handouts`; see the seats with `lab class status`")


def status(file: Path, *, json: bool) -> None:
    """Print the end of the class, each seat with its GPUs and its newest run, and the queue."""
    from lab.classroom.queue.folder import queued  # noqa: PLC0415  (docker-py)
    from lab.classroom.status import seat_statuses  # noqa: PLC0415

    folder = running_class(file)
    seats, queue = seat_statuses(folder), queued(folder)
    end = _local(folder.end())
    if json:
        print_json(msgspec.to_builtins({"end": end, "seats": seats, "queue": queue}))
        return
    if end:
        LOG.info(f"class {folder.name}: {class_tables.when_ends(end)}")
    class_tables.show_seats(seats, queue)


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
    when = class_tables.when_ends(at) if at else "has no end"
    sys.stdout.write(f"the class {when}\n")


def _local(time_unix: float | None) -> datetime | None:
    return None if time_unix is None else datetime.fromtimestamp(time_unix).astimezone()


def board(file: Path, *, port: int | None) -> None:
    """Show the seats, their stages, the queue and the time left as a page, until Ctrl-C."""
    from lab.board.class_feed import ClassFeed  # noqa: PLC0415  (docker-py)
    from lab.board.server import PORT, encoded, serve  # noqa: PLC0415

    feed = ClassFeed(running_class(file))
    asyncio.run(serve(partial(encoded, "class", feed), port or PORT))


def handouts(file: Path, *, output: str | None) -> None:
    """Write a page with a handout for each seat, to print."""
    from lab.classroom.handouts import write_handouts  # noqa: PLC0415  (segno)

    folder = running_class(file)
    page = Path(output or f"{folder.name}-handouts.html")
    write_handouts(folder, page)
    if line := folder.stored().plan.reach:
        LOG.info(line)
    LOG.info(f"print {page}, and then delete it: it has the password of every seat")


def reset(file: Path, *, of: str, yes: bool) -> None:
    """Give a seat its first state again; keep a copy of the student's work."""
    from lab.classroom import environment  # noqa: PLC0415  (docker-py)

    folder = running_class(file)
    environment.check_seat(folder.stored().plan, of)
    if not yes:
        confirm(f"reset {of}? A copy of its work is kept.")
    environment.reset(folder, of)


def down(file: Path, *, output: str | None, yes: bool) -> None:
    """Collect the work of every seat, then remove the class."""
    from lab.classroom import environment  # noqa: PLC0415  (docker-py)

    folder = running_class(file)
    if not yes:
        confirm(f"remove the class {folder.name!r}? Its work is collected first.")
    default = f"{folder.name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.zip"
    environment.down(folder, Path(output or default))


def gradebook(_file: Path, *, of: str, output: str | None, json: bool) -> None:
    """Print, or write, which stages of the lessons each seat has passed."""
    from lab.classroom.gradebook import as_csv, read_gradebook  # noqa: PLC0415

    if not of:
        raise InputError("no archive is given", "name the file that `lab class down` wrote")
    entries = read_gradebook(Path(of))
    if json:
        print_json([asdict(entry) for entry in entries])
    elif output:
        write_private(Path(output), as_csv(entries))
        LOG.info(f"{output}: {counted(len(entries), 'row')}")
    else:
        class_tables.show_gradebook(entries)
