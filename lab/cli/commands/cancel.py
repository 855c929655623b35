"""`lab cancel [RUN]`.

Examples:
    # the newest run
    lab cancel
    # a run by its id, or a prefix of it
    lab cancel 20261121-0810-async-7f3a
"""

from __future__ import annotations

from typing import Annotated, Final

from lab.log import LOG
from lab.options import Argument
from lab.options.shared import RunsDir
from lab.service.environments import cancel, locate_run
from lab.store.directory import LAST, runs_dir

REASON: Final = "cancelled by `lab cancel`"


def command(
    *,
    run: Annotated[
        str, Argument("a run's id, a unique prefix of it, last, or last~1 (default: last)")
    ] = LAST,
    runs_dir_: RunsDir = None,
) -> None:
    """Ask the tasks of a run to end; a client that follows the run collects it."""
    found = locate_run(run, runs_dir(runs_dir_))
    cancel(found, REASON)
    run_id = found.run.run_id
    LOG.info(f"run {run_id} is cancelled; collect it with `lab collect {run_id}`")
