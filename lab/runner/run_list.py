"""The table of runs: a row for each run of a run store, also for a damaged run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table

from lab.base.errors import LabError
from lab.base.formatting import rate, share, whole
from lab.base.log import LOG
from lab.base.tables import Cell, fitting
from lab.base.text import visible
from lab.protocol.volume.states import State
from lab.runner.discovery import locate
from lab.runner.recovery import collect_one
from lab.runner.result_table import state_cell
from lab.runner.status import NOT_COLLECTED, StatusProber, is_settled, status_or_warn
from lab.runner.store.directory import Probe, RunDir, RunStatus
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summary import read_summary

DAMAGED: Final = "damaged"
"""The state of a run whose files cannot be read. The protocol has no such state."""

STATES: Final = (*map(str, State), DAMAGED)
"""All states of a row."""

_COLUMNS = (
    "run", "experiment", "backend", "state", ">epochs", ">global step", ">steps/s", ">accuracy",
    "started (UTC)",
)  # fmt: skip

_GIVE_WAY = (
    "started (UTC)", "backend", ">global step", ">steps/s", ">epochs", ">accuracy", "state",
)  # fmt: skip
"""The columns that a narrow terminal leaves out, in this order. A user types the other two."""

_LEGEND: Final = "* with an injected fault; see it with `lab show RUN`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The facts of a run. A damaged run has only its id and its error.

    `epochs` is the highest number of a task's epochs, counted from 1. `steps_per_s` is the number
    of global steps per second. `faults` are those that the user ordered, and `missing` the
    tasks that a run succeeded without.
    """

    run_id: str
    experiment: str = ""
    backend: str = ""
    state: str
    reason: str = ""
    note: str = ""
    epochs: int | None = None
    global_step: int | None = None
    steps_per_s: float | None = None
    accuracy: float | None = None
    started: str = ""
    faults: Sequence[str] = ()
    missing: Sequence[str] = ()


def run_rows(runs: Mapping[RunDir, RunInfo | None], probe: Probe) -> list[Row]:
    """Return the facts of each run.

    Args:
        runs: The runs with their `run.json`; None: it is read now.
        probe: Returns the status of a run that is not collected.
    """
    rows = []
    for run, info in runs.items():
        try:
            rows.append(_row(run, info or run.read(), probe))
        except (LabError, OSError) as error:  # a damaged run must not hide the others
            reason = visible(str(error))
            rows.append(Row(run_id=run.run_id, state=DAMAGED, reason=reason, note=reason))
    return rows


def collected_rows(runs: Mapping[RunDir, RunInfo | None], prober: StatusProber) -> list[Row]:
    """Return the facts of each run; collect those that have ended without a client before.

    A line names each collected run. If one cannot be collected, a warning says why.
    """
    rows = run_rows(runs, prober)
    for position, run in enumerate(runs):
        if rows[position].note.startswith(NOT_COLLECTED) and _collect_ended(run, prober):
            (rows[position],) = run_rows({run: None}, prober)
    return rows


def _collect_ended(run: RunDir, prober: StatusProber) -> bool:
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


def filtered(
    rows: Iterable[Row], *, last: int | None = None, experiment: str = "", state: str = ""
) -> list[Row]:
    """Return the rows that match every given filter, in their order.

    Args:
        rows: The rows, the newest last.
        last: The maximum number of rows, the newest ones of those that match; None: all.
        experiment: The name of an experiment or of an own program, or "".
        state: One of `STATES`, or "".
    """
    matching = [
        row for row in rows if experiment in {"", row.experiment} and state in {"", row.state}
    ]
    return matching[-last:] if last else matching


def runs_table(rows: Iterable[Row], width: int | None = None) -> tuple[Table, list[str]]:
    """Return a table with a row for each run, and the names of the columns left out of it.

    Run ids and the names of experiments are never cut.

    Args:
        rows: The rows.
        width: The width in characters; None: as wide as needed, with all columns.
    """
    table, left_out = fitting(
        _COLUMNS, map(_cells, rows), width=width, give_way=_GIVE_WAY, whole=("run", "experiment")
    )
    return table, [name.removeprefix(">") for name in left_out]


def notes(rows: Sequence[Row]) -> list[str]:
    """Return a line for each run with a note, such as the error of a damaged run."""
    lines = [f"run {visible(row.run_id)} {row.state}: {row.note}" for row in rows if row.note]
    return [*lines, *([_LEGEND] if any(row.faults for row in rows) else [])]


def _row(run: RunDir, info: RunInfo, probe: Probe) -> Row:
    # The statuses of a settled run need not be read.
    status = RunStatus(info, {}) if is_settled(info) else status_or_warn(run, probe)
    info = status.info
    summary = read_summary(run.summary_path)
    tasks, missing = (summary.tasks, summary.missing) if summary else ([], [])
    epochs = (task.epoch + 1 for task in tasks if task.epoch is not None)
    return Row(
        run_id=info.run_id,
        experiment=info.spec.experiment,
        backend=info.backend,
        state=status.state.value,
        reason=status.reason,
        note=status.note or (f"without {', '.join(missing)}" if missing else ""),
        epochs=max(epochs, default=None),
        global_step=summary.global_step if summary else None,
        steps_per_s=summary.steps_per_s if summary else None,
        accuracy=summary.accuracy if summary else None,
        started=time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(info.started_unix)),
        faults=info.spec.faults,
        missing=missing,
    )


def _cells(row: Row) -> list[Cell]:
    return [
        row.run_id,
        row.experiment,
        row.backend,
        state_cell(row.state, is_degraded=bool(row.missing)).append("*" if row.faults else ""),
        whole(row.epochs),
        whole(row.global_step),
        rate(row.steps_per_s),
        share(row.accuracy),
        row.started,
    ]
