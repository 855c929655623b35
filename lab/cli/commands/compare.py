"""`lab compare RUN RUN…`.

RUN is the id of a run, last or last~1, the directory of a run, a directory of runs, or
an archive of `lab export`. An argument with a slash is always a path.

Examples:
    # the newest run and another one
    lab compare 20260101-0000 last
    # also what is the same
    lab compare 20260101-0000 last --all
    # the same as JSON, with names
    lab compare 20260101-0000 last --label before --label after --json
"""

from __future__ import annotations

from typing import Annotated

from lab.console import print_json
from lab.options import Argument, Arguments, Switch
from lab.options.shared import AsJson, Labels, RunsDir
from lab.service.compare import compare_runs
from lab.store.directory import runs_dir
from lab.tables import show


def command(
    *,
    run: Annotated[
        str, Argument("the run to compare the others with, or a directory of runs", shows="RUN")
    ],
    runs: Annotated[tuple[str, ...], Arguments("other runs", shows="OTHER")] = (),
    label: Labels = (),
    all_: Annotated[bool, Switch("also list the settings and metrics that are the same")] = False,
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Print runs side by side."""
    sides = compare_runs((run, *runs), runs_dir(runs_dir_), labels=label)
    # Imported here: importing pandas takes half a second.
    from lab.analysis.comparison_view import as_json, tables  # noqa: PLC0415

    if json:
        print_json(as_json(sides))
        return
    for place, part in enumerate(tables(sides, everything=all_)):
        if place:
            print()
        show(part)
