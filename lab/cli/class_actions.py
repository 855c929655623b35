"""The actions of `lab class`: the function of the action's name."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from time import time as now

import msgspec

from lab.classroom.preparation import boot, plan_from, running_class
from lab.classroom.state import changed_end
from lab.cli import class_tables
from lab.console import confirm, print_json
from lab.errors import ConfigError, InputError
from lab.formatting import counted
from lab.log import LOG
from lab.volume.files import write_atomically


@dataclass(frozen=True, slots=True)
class ClassOptions:
    """The arguments and flags of all actions; an action uses those that apply to it.

    Attributes:
        file: The class config.
        gpus: The host to plan for: `auto`, `none`, or the number of GPUs of another host.
        json: Whether to print JSON.
        of: The seat, the archive, or the time; or "".
        output: The file to write, or None.
        url: The address for browsers, or None.
        port: The port of the board, or None.
        yes: Whether to remove without a question.
    """

    file: Path
    gpus: str | int
    json: bool
    of: str
    output: Path | None
    url: str | None
    port: int | None
    yes: bool

    def confirm(self, question: str) -> None:
        """Ask a question, unless `--yes` is given.

        Raises:
            InputError: The user does not agree, or cannot be asked.
        """
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise InputError(f"cannot ask: {question} (stdin is not a terminal)", "add --yes")
        if not confirm(question):
            raise InputError("nothing was removed", "answer y, or add --yes")


def validate(options: ClassOptions) -> None:
    """Check a class config and this host, and print what each seat gets."""
    file = str(options.file)
    try:
        plan = plan_from(options.file, options.gpus)
    except ConfigError as error:
        if options.json:
            print_json({"file": file, "valid": False, "problems": error.problems})
        raise
    if options.json:
        print_json({"file": file, "valid": True, "problems": [], **plan.to_json()})
        return
    class_tables.show_plan(plan)
    LOG.info(f"{file}: valid: {plan.name}, {counted(len(plan.seats), 'seat')}")


def up(options: ClassOptions) -> None:
    """Boot a class, and print where to go on."""
    plan = boot(options.file)
    LOG.info(f"class {plan.name}: {counted(len(plan.seats), 'seat')} at {plan.url}")
    LOG.info("print the passwords with `lab class handouts`; see the seats with `lab class status`")


def status(options: ClassOptions) -> None:
    """Print the end of the class, each seat with its GPUs and its newest run, and the queue."""
    from lab.classroom.queue.folder import queued  # noqa: PLC0415  (docker-py)
    from lab.classroom.status import seat_statuses  # noqa: PLC0415

    folder = running_class(options.file)
    seats, queue = seat_statuses(folder), queued(folder)
    end = _local(folder.end())
    if options.json:
        print_json(msgspec.to_builtins({"end": end, "seats": seats, "queue": queue}))
        return
    if end:
        LOG.info(f"class {folder.name}: {class_tables.when_ends(end)}")
    class_tables.show_seats(seats, queue)


def time(options: ClassOptions) -> None:
    """Print the time left of the class; or change its end, and print that."""
    folder = running_class(options.file)
    if options.of:
        extends = options.of.startswith("+")  # otherwise, the file may be damaged
        folder.set_end(changed_end(options.of, folder.end() if extends else None, now()))
    end = folder.end()
    at, left_s = _local(end), None if end is None else max(0.0, end - now())
    if options.json:
        print_json(msgspec.to_builtins({"end": at, "left_s": left_s}))
        return
    when = class_tables.when_ends(at) if at else "has no end"
    sys.stdout.write(f"the class {when}\n")


def _local(time_unix: float | None) -> datetime | None:
    return None if time_unix is None else datetime.fromtimestamp(time_unix).astimezone()


def board(options: ClassOptions) -> None:
    """Show the seats, their stages, the queue and the time left as a page, until Ctrl-C."""
    from lab.board.class_feed import ClassFeed  # noqa: PLC0415  (docker-py)
    from lab.board.server import (  # noqa: PLC0415
        PORT,
        encoded,
        serve,
    )

    feed = ClassFeed(running_class(options.file))
    asyncio.run(serve(partial(encoded, "class", feed), options.port or PORT))


def handouts(options: ClassOptions) -> None:
    """Write a page with a handout for each seat, to print."""
    from lab.classroom.handouts import write_handouts  # noqa: PLC0415  (segno)

    folder = running_class(options.file)
    page = options.output or Path(f"{folder.name}-handouts.html")
    write_handouts(folder, page, options.url)
    LOG.info(f"print {page}, and then delete it: it has the password of every seat")


def reset(options: ClassOptions) -> None:
    """Give a seat its first state again; keep a copy of the student's work."""
    from lab.classroom import environment  # noqa: PLC0415  (docker-py)

    folder = running_class(options.file)
    environment.check_seat(folder.stored().plan, options.of)
    options.confirm(f"reset {options.of}? A copy of its work is kept.")
    environment.reset(folder, options.of)


def down(options: ClassOptions) -> None:
    """Collect the work of every seat, then remove the class."""
    from lab.classroom import environment  # noqa: PLC0415  (docker-py)

    folder = running_class(options.file)
    options.confirm(f"remove the class {folder.name!r}? Its work is collected first.")
    default = Path(f"{folder.name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.zip")
    environment.down(folder, options.output or default)


def gradebook(options: ClassOptions) -> None:
    """Print, or write, which stages of the lessons each seat has passed."""
    from lab.classroom.gradebook import as_csv, read_gradebook  # noqa: PLC0415

    if not options.of:
        raise InputError("no archive is given", "name the file that `lab class down` wrote")
    entries = read_gradebook(Path(options.of))
    if options.json:
        print_json([asdict(entry) for entry in entries])
    elif options.output:
        write_atomically(options.output, as_csv(entries))
        LOG.info(f"{options.output}: {counted(len(entries), 'row')}")
    else:
        class_tables.show_gradebook(entries)
