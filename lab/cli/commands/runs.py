"""`lab runs`.

Examples:
    # sorted by start time, the newest last
    lab runs
    # another run store, as JSON
    lab runs --runs-dir /tmp/runs --json
"""

from __future__ import annotations

import time
from typing import Final

from lab.backends.selection import backends
from lab.cli.options import AsJson, RunsDir
from lab.console import notify, print_json
from lab.errors import LabError
from lab.run.status import Probe, StatusProber, status_or_warn
from lab.run.store import RunDir, all_runs, runs_dir
from lab.run.summary import read_summary
from lab.run.tables import Cell, show, state_cell, table_of
from lab.task.text import visible

DAMAGED: Final = "damaged"
"""The state of a run whose files cannot be read. The protocol has no such state."""

_COLUMNS = ("run", "experiment", "backend", "state", ">global step", ">accuracy", "started (UTC)")


def command(*, json: AsJson = False, runs_dir_: RunsDir = None) -> None:
    """List the runs of the run store, the newest last."""
    store = runs_dir(runs_dir_)
    prober = StatusProber(backends)
    rows = []
    for run in all_runs(store):
        try:
            rows.append(_row(run, prober))
        except (LabError, OSError) as error:  # a damaged run must not hide the others
            rows.append(_damaged(run, error))
    if json:
        print_json(rows)
    elif not rows:
        notify(f"no run in {store}; start one with `lab run async`")
    else:
        show(table_of(_COLUMNS, map(_cells, rows)))
        for row in rows:
            if row["note"]:
                notify(f"run {visible(str(row['run_id']))} {row['state']}: {row['note']}")


def _row(run: RunDir, prober: Probe) -> dict[str, object]:
    found = status_or_warn(run, prober, notify)
    info = found.info
    summary = read_summary(run.summary_path)
    return {
        "run_id": info.run_id,
        "experiment": info.spec.experiment,
        "backend": info.backend,
        "state": found.state.value,
        "reason": found.reason,
        "note": found.note,
        "global_step": summary.global_step if summary else None,
        "accuracy": summary.accuracy if summary else None,
        "started": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(info.started_unix)),
    }


def _cells(row: dict[str, object]) -> list[Cell]:
    return [
        str(row["run_id"]),
        str(row["experiment"]),
        str(row["backend"]),
        state_cell(str(row["state"])),
        _number(row["global_step"], ","),
        _number(row["accuracy"], ".4f"),
        str(row["started"]),
    ]


def _damaged(run: RunDir, error: LabError | OSError) -> dict[str, object]:
    reason = visible(str(error))
    return {
        "run_id": run.run_id,
        "experiment": "",
        "backend": "",
        "state": DAMAGED,
        "reason": reason,
        "note": reason,
        "global_step": None,
        "accuracy": None,
        "started": "",
    }


def _number(value: object, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else ""
