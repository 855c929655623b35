"""`lab attach [RUN]`.

Examples:
    # the newest one; it goes on after Ctrl-C
    lab attach
    # its summary at the end, for a program
    lab attach last --json
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from lab.cli.arguments import Argument, Switch
from lab.cli.options import RunsDir
from lab.cli.output import print_summary
from lab.console import notify
from lab.errors import InterruptError
from lab.run.store import LAST, runs_dir
from lab.run.view import followed_view
from lab.service.environments import attach, locate_run
from lab.service.outcome import check_succeeded


def command(
    *,
    run: Annotated[
        str, Argument("a run's id, a unique beginning of it, or last (default: last)")
    ] = LAST,
    json: Annotated[bool, Switch("print the summary as the last line of stdout")] = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Follow a run whose helper has gone, and bring it home; Ctrl-C leaves it going."""
    store = runs_dir(runs_dir_)
    found = locate_run(run, store)
    try:
        summary = attach(found, store, notify, partial(followed_view, found.run))
    except KeyboardInterrupt:
        raise InterruptError(
            f"left run {found.run.run_id}, which goes on",
            f"`lab attach {found.run.run_id}` follows it again, `lab cancel` ends it",
        ) from None
    if found.request is not None and found.environment is not None:
        notify(f"environment {found.environment.project!r} stays up; `lab down` removes it")
    print_summary(summary, json=json)
    check_succeeded(found.run, summary, notify)
