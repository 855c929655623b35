"""`lab cancel [RUN]`."""

from __future__ import annotations

from typing import Annotated, Final

from lab.backends import Environment
from lab.backends.choose import backends
from lab.cli.arguments import Word
from lab.cli.options import RunsDir
from lab.cli.output import say
from lab.errors import InputError
from lab.run.directory import LAST, runs_dir
from lab.run.project import default_name
from lab.run.whereabouts import find, reachable, statuses_of

REASON: Final = "cancelled by `lab cancel`"


def command(
    *,
    run: Annotated[
        str, Word("a run's id, a unique beginning of it, or last (default: last)")
    ] = LAST,
    runs_dir_: RunsDir = None,
) -> None:
    """Ask the tasks of a run to end; whoever follows it brings it home."""
    here = default_name()
    found = find(run, runs_dir(runs_dir_), reachable(backends(), here), here)
    if found.environment is None or _ended(found.environment, found.run.run_id):
        raise InputError(
            f"run {found.run.run_id} has ended", f"see it with `lab show {found.run.run_id}`"
        )
    found.environment.cancel(found.run.run_id, REASON)
    say(f"run {found.run.run_id} ends; bring it home with `lab collect {found.run.run_id}`")


def _ended(environment: Environment, run_id: str) -> bool:
    return all(status.state.ended for status in statuses_of(environment, run_id).values())
