"""`lab cancel [RUN]`.

Examples:
    # the newest one
    lab cancel
    # one by its id, or the beginning of it
    lab cancel 20261121-0810-async-7f3a
"""

from __future__ import annotations

from typing import Annotated, Final

from lab.backends.choose import backends
from lab.cli.arguments import Word
from lab.cli.options import RunsDir
from lab.cli.output import say
from lab.errors import InputError
from lab.run.directory import LAST, runs_dir
from lab.run.project import default_name
from lab.run.standing import There, states_of
from lab.run.whereabouts import locate

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
    found = locate(run, runs_dir(runs_dir_), backends(), here)
    run_id = found.run.run_id
    there = None if found.environment is None else states_of(found.environment, run_id)
    if found.environment is None or there is None or _ended(there):
        raise InputError(f"run {run_id} has ended", f"see it with `lab show {run_id}`")
    if there.gone:
        raise InputError(
            f"run {run_id} has no task left to cancel: its environment has gone",
            f"bring home what it left with `lab collect {run_id}`",
        )
    found.environment.cancel(run_id, REASON)
    say(f"run {run_id} ends; bring it home with `lab collect {run_id}`")


def _ended(there: There) -> bool:
    return all(status.state.ended for status in there.statuses.values())
