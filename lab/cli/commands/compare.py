"""`lab compare RUN RUN…`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from lab.backends.choose import backends
from lab.cli.arguments import Word, Words
from lab.cli.options import AsJson, RunsDir
from lab.console import print_json, say
from lab.errors import InputError
from lab.run.standing import Ask, Volumes, told
from lab.run.store import RunDir, find_run, runs_dir
from lab.run.summarize import sum_up
from lab.run.tables import show

if TYPE_CHECKING:
    from lab.compare.view import Side


def command(
    *,
    run: Annotated[
        str, Word("the run that the others are held against: its id, or last", shows="RUN")
    ],
    runs: Annotated[tuple[str, ...], Words("one or more others", shows="OTHER")],
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Lay runs side by side."""
    home = runs_dir(runs_dir_)
    wanted = [find_run(word, home) for word in (run, *runs)]
    twice = next((each for place, each in enumerate(wanted) if each in wanted[:place]), None)
    if twice is not None:
        raise InputError(f"run {twice.run_id} is named twice", "name another one")
    # Imported here: pandas costs half a second, and a refusal needs none of it.
    from lab.compare.view import as_json, tables  # noqa: PLC0415

    ask = Volumes(backends)
    sides = [_side(each, ask) for each in wanted]
    if json:
        print_json(as_json(sides))
        return
    for place, part in enumerate(tables(sides)):
        if place:
            print()
        show(part)


def _side(run: RunDir, ask: Ask) -> Side:
    """All that is known of one run, worked out anew from its files."""
    from lab.compare.figures import of_run, of_task  # noqa: PLC0415
    from lab.compare.making import made  # noqa: PLC0415
    from lab.compare.view import Side  # noqa: PLC0415
    from lab.run.frame import steps_frame  # noqa: PLC0415

    found = told(run, ask, say)
    info = found.info
    summary = sum_up(run, info, found.statuses)
    steps = steps_frame(run, say=say)
    return Side(
        summary=summary,
        started_unix=info.started_unix,
        made=made(run, info),
        figures=of_run(summary, steps),
        tasks={task.task: of_task(task, steps) for task in summary.tasks},
    )
