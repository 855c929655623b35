"""`lab show RUN`."""

from __future__ import annotations

from typing import Annotated

from lab.cli.arguments import Word
from lab.cli.options import AsJson, RunsDir
from lab.run.directory import find_run, runs_dir
from lab.run.summary import summarize
from lab.run.view import result, show


def command(
    *,
    run: Annotated[str, Word("a run's id, a unique beginning of it, or last")],
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Show one run's table, worked out anew from its files."""
    summary = summarize(find_run(run, runs_dir(runs_dir_)))
    if json:
        print(summary.to_json())
    else:
        show(result(summary))
