"""`lab compare RUN RUN…`.

Examples:
    # the newest run beside another
    lab compare 20260101-0000 last
    # the same for a program
    lab compare 20260101-0000 last --json
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from lab.backends.selection import backends
from lab.cli.arguments import Argument, Arguments
from lab.cli.options import AsJson, RunsDir
from lab.console import notify, print_json
from lab.errors import InputError
from lab.run.status import Probe, StatusProber, status_or_warn
from lab.run.store import RunDir, find_run, runs_dir
from lab.run.summarize import sum_up
from lab.run.tables import show

if TYPE_CHECKING:
    from lab.compare.view import Side


def command(
    *,
    run: Annotated[
        str, Argument("the run that the others are held against: its id, or last", shows="RUN")
    ],
    runs: Annotated[tuple[str, ...], Arguments("one or more others", shows="OTHER")],
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Lay runs side by side."""
    store = runs_dir(runs_dir_)
    wanted = [find_run(argument, store) for argument in (run, *runs)]
    twice = next((each for place, each in enumerate(wanted) if each in wanted[:place]), None)
    if twice is not None:
        raise InputError(f"run {twice.run_id} is named twice", "name another one")
    # Imported here: pandas costs half a second, and a refusal needs none of it.
    from lab.compare.view import as_json, tables  # noqa: PLC0415

    ask = StatusProber(backends)
    sides = [_side(each, ask) for each in wanted]
    if json:
        print_json(as_json(sides))
        return
    for place, part in enumerate(tables(sides)):
        if place:
            print()
        show(part)


def _side(run: RunDir, ask: Probe) -> Side:
    """All that is known of one run, worked out anew from its files."""
    from lab.compare.config_diff import describe  # noqa: PLC0415
    from lab.compare.metrics import of_run, of_task  # noqa: PLC0415
    from lab.compare.view import Side  # noqa: PLC0415
    from lab.run.dataframe import steps_frame  # noqa: PLC0415

    found = status_or_warn(run, ask, notify)
    info = found.info
    summary = sum_up(run, info, found.statuses)
    steps = steps_frame(run, notify=notify)
    return Side(
        summary=summary,
        started_unix=info.started_unix,
        made=describe(run, info),
        figures=of_run(summary, steps),
        tasks={task.task: of_task(task, steps) for task in summary.tasks},
    )
