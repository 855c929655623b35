"""`lab show RUN`.

Examples:
    # the newest run
    lab show last
    # its summary, for a program
    lab show last --json
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from lab.backends.choose import backends
from lab.cli.arguments import Word
from lab.cli.options import AsJson, RunsDir
from lab.cli.output import say
from lab.run.cells import show
from lab.run.directory import find_run, runs_dir
from lab.run.result import result
from lab.run.standing import Volumes, told
from lab.run.summary import sum_up


def command(
    *,
    run: Annotated[str, Word("a run's id, a unique beginning of it, or last")],
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Show one run's table, worked out anew from its files."""
    wanted = find_run(run, runs_dir(runs_dir_))
    found = told(wanted, Volumes(backends), say)
    info = replace(wanted.read(), state=found.state, reason=found.reason)
    summary = sum_up(wanted, info, found.statuses)
    if found.note:
        say(f"run {wanted.run_id}: {found.note}")
    if json:
        print(summary.to_json())
    else:
        show(result(summary))
