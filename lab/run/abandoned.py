"""Collect the runs that have ended after their client has died."""

from __future__ import annotations

from collections.abc import Sequence

from lab.errors import LabError
from lab.log import LOG
from lab.run.discovery import locate
from lab.run.recovery import collect_one
from lab.run.run_list import Row, run_rows
from lab.run.status import NOT_COLLECTED, StatusProber
from lab.store.directory import RunDir


def collected_rows(runs: Sequence[RunDir], prober: StatusProber) -> list[Row]:
    """Return the facts of each run; collect those that have ended without a client before.

    A line names each collected run. If one cannot be collected, a warning says why.
    """
    rows = run_rows(runs, prober)
    for position, run in enumerate(runs):
        if rows[position].note.startswith(NOT_COLLECTED) and _collect(run, prober):
            (rows[position],) = run_rows([run], prober)
    return rows


def _collect(run: RunDir, prober: StatusProber) -> bool:
    store = run.path.parent
    try:
        location = locate(run.run_id, store, prober.known(), None)
        if location.request is None or location.environment is None:
            return False
        collect_one(location.request, location.environment, store)
    except (LabError, OSError) as error:
        LOG.warning(f"run {run.run_id} is not collected: {error}")
        return False
    return True
