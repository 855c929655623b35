"""`lab attach [RUN]`.

Examples:
    # the newest one; it goes on after Ctrl-C
    lab attach
    # its summary at the end, for a program
    lab attach last --json
"""

from __future__ import annotations

from typing import Annotated

from lab.backends.choose import backends
from lab.cli.arguments import Switch, Word
from lab.cli.options import RunsDir
from lab.cli.outcome import judge, tell
from lab.cli.output import say
from lab.errors import InterruptError
from lab.run.directory import LAST, runs_dir
from lab.run.homecoming import bring_one_home
from lab.run.project import default_name
from lab.run.standing import Volumes, settle
from lab.run.summary import summarize
from lab.run.telemetry import followed
from lab.run.whereabouts import locate


def command(
    *,
    run: Annotated[
        str, Word("a run's id, a unique beginning of it, or last (default: last)")
    ] = LAST,
    json: Annotated[bool, Switch("print the summary as the last line of stdout")] = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Follow a run whose helper has gone, and bring it home; Ctrl-C leaves it going."""
    home = runs_dir(runs_dir_)
    here = default_name()
    known = backends()
    found = locate(run, home, known, here)
    if found.request is None or found.environment is None:
        settle(found.run, Volumes(lambda: known))
        summary = summarize(found.run)
    else:
        try:
            summary = bring_one_home(
                found.request,
                found.environment,
                home,
                say,
                follow=True,
                view=lambda: followed(found.run),
            )
        except KeyboardInterrupt:
            raise InterruptError(
                f"left run {found.run.run_id}, which goes on",
                f"`lab attach {found.run.run_id}` follows it again, `lab cancel` ends it",
            ) from None
        say(f"environment {found.environment.project!r} stays up; `lab down` removes it")
    tell(summary, json=json)
    judge(found.run, summary)
