"""`lab show RUN`."""

from __future__ import annotations

from typing import Annotated

from lab.backends.choose import backends
from lab.cli.arguments import Word
from lab.cli.options import AsJson, RunsDir
from lab.console import say
from lab.run.standing import Volumes, told
from lab.run.store import find_run, runs_dir
from lab.run.summarize import sum_up
from lab.run.tables import result, show


def command(
    *,
    run: Annotated[str, Word("a run's id, a unique beginning of it, or last")],
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Show one run's table, worked out anew from its files."""
    wanted = find_run(run, runs_dir(runs_dir_))
    found = told(wanted, Volumes(backends), say)
    summary = sum_up(wanted, found.info, found.statuses)
    if found.note:
        say(f"run {wanted.run_id}: {found.note}")
    if json:
        print(summary.to_json())
    else:
        show(result(summary))
