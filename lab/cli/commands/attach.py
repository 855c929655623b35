"""`lab attach [RUN]`.

Examples:
    # the newest run; it continues after Ctrl-C
    lab attach
    # print its summary as JSON at the end
    lab attach last --json
"""

from __future__ import annotations

from typing import Annotated

from lab.cli.output import print_summary
from lab.cli.run_view import followed_view
from lab.errors import InterruptError
from lab.log import LOG
from lab.options import Argument, Switch
from lab.options.shared import RunsDir
from lab.service.environments import attach, locate_run
from lab.service.outcome import check_succeeded
from lab.store.directory import LAST, RunDir, runs_dir


def command(
    *,
    run: Annotated[
        str, Argument("a run's id, a unique prefix of it, last, or last~1 (default: last)")
    ] = LAST,
    json: Annotated[bool, Switch("print the summary as JSON, as the last line of stdout")] = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Follow and collect a run whose client has stopped; after Ctrl-C the run continues."""
    store = runs_dir(runs_dir_)
    found = locate_run(run, store)
    try:
        summary = attach(
            found, store, lambda info: followed_view(RunDir(store / info.run_id), info)
        )
    except KeyboardInterrupt:
        raise InterruptError(
            f"detached from run {found.run.run_id}, which continues",
            f"`lab attach {found.run.run_id}` follows it again, `lab cancel` stops it",
        ) from None
    if found.request is not None and found.environment is not None:
        LOG.info(f"environment {found.environment.project!r} is kept; remove it with `lab down`")
    print_summary(summary, json=json)
    check_succeeded(RunDir(store / summary.run_id), summary)
