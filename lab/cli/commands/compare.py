"""`lab compare RUN RUN…`.

Examples:
    # the newest run and another one
    lab compare 20260101-0000 last
    # the same as JSON
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
        str, Argument("the run to compare the others with: its id, last, or last~1", shows="RUN")
    ],
    runs: Annotated[tuple[str, ...], Arguments("one or more other runs", shows="OTHER")],
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Print runs side by side."""
    store = runs_dir(runs_dir_)
    wanted = [find_run(argument, store) for argument in (run, *runs)]
    duplicate = next((each for place, each in enumerate(wanted) if each in wanted[:place]), None)
    if duplicate is not None:
        raise InputError(f"run {duplicate.run_id} is given twice", "name another run")
    # Imported here: importing pandas takes half a second.
    from lab.compare.view import as_json, tables  # noqa: PLC0415

    prober = StatusProber(backends)
    sides = [_side(each, prober) for each in wanted]
    if json:
        print_json(as_json(sides))
        return
    for place, part in enumerate(tables(sides)):
        if place:
            print()
        show(part)


def _side(run: RunDir, prober: Probe) -> Side:
    """Return the column of one run, computed from its files."""
    from lab.compare.config_diff import describe  # noqa: PLC0415
    from lab.compare.metrics import of_run, of_task  # noqa: PLC0415
    from lab.compare.view import Side  # noqa: PLC0415
    from lab.run.dataframe import steps_frame  # noqa: PLC0415

    found = status_or_warn(run, prober, notify)
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
