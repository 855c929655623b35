"""`lab cancel [RUN]`.

Examples:
    # the newest run
    lab cancel
    # a run by its id, or a prefix of it
    lab cancel 20261121-0810-async-7f3a
"""

from __future__ import annotations

from collections.abc import Callable

from lab.api.following import cancel
from lab.base.options import presents
from lab.log import LOG


@presents(cancel)
def command(cancelled: Callable[[], str]) -> None:
    """Ask the tasks of a run to end; a client that follows the run collects it."""
    run_id = cancelled()
    LOG.info(f"run {run_id} is cancelled; collect it with `lab attach {run_id}`")
