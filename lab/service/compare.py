"""The comparison of `lab compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lab.backends.registry import backends
from lab.errors import InputError, Notify
from lab.run.status import StatusProber, status_or_warn
from lab.store.names import NamedRun, open_runs, read_each
from lab.store.status import Probe
from lab.store.summarize import sum_up

if TYPE_CHECKING:
    from lab.compare.view import Side


def compare_runs(
    arguments: Sequence[str], store: Path, notify: Notify, *, labels: Sequence[str] = ()
) -> list[Side]:
    """Read runs to show them side by side.

    Args:
        arguments: What `lab.store.names.open_runs` accepts.
        store: The run store.
        notify: Receives warnings, also for each run that is left out.
        labels: No label, one for each argument, or a single one for all of them.

    Raises:
        InputError: An argument names no run, or there are not two runs.
        LabError: Fewer than two runs can be read.
    """
    with open_runs(arguments, labels, store, notify, repeats=False) as runs:
        if len(runs) == 1:
            raise InputError(f"run {runs[0].name} is the only run", "name another run")
        prober = StatusProber(backends)
        return read_each(runs, lambda run: _side(run, prober, notify), notify, at_least=2)


def _side(named: NamedRun, prober: Probe, notify: Notify) -> Side:
    """Return the column of one run, computed from its files."""
    # Imported here: importing pandas takes half a second.
    from lab.compare.config_diff import describe  # noqa: PLC0415
    from lab.compare.metrics import of_run, of_task  # noqa: PLC0415
    from lab.compare.view import Side  # noqa: PLC0415
    from lab.store.dataframe import steps_frame  # noqa: PLC0415

    run = named.directory
    found = status_or_warn(run, named.probe(prober), notify)
    info = found.info
    summary = sum_up(run, info, found.statuses)
    steps = steps_frame(run, notify=notify)
    return Side(
        summary=summary,
        started_unix=info.started_unix,
        made=describe(run, info),
        figures=of_run(summary, steps),
        tasks={task.task: of_task(task, steps) for task in summary.tasks},
        label=named.label,
    )
