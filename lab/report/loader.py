"""Reads the files of runs for a report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lab.plots.data import Trace, evaluations_of, samples_of, steps_of
from lab.report.markers import marks_of, not_done
from lab.run.dataframe import DAMAGED, records_frame
from lab.run.progress import read_records
from lab.run.run_info import RunInfo
from lab.run.sources import NamedRun
from lab.run.status import Probe, status_or_warn
from lab.run.store import RunDir
from lab.run.summarize import sum_up
from lab.run.summary import Summary

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ReportRun:
    """One run, as the report shows it.

    Attributes:
        run: Its directory.
        summary: Its summary.
        trace: The data of its figures.
        note: A note on its state, or "".
        damaged: A text for each damaged line of its records, with its location.
        not_done: The requested faults without a record.
        learning_rate: The learning rate that its tasks record; None if they record none.
        label: The user's name for it, or "".
        prefix: The label of all runs of its group, or "".
    """

    run: RunDir
    summary: Summary
    trace: Trace
    note: str = ""
    damaged: Sequence[str] = ()
    not_done: Sequence[str] = ()
    learning_rate: float | None = None
    label: str = ""
    prefix: str = ""

    @property
    def name(self) -> str:
        """The label, or the run's id."""
        return self.label or self.info.run_id

    @property
    def info(self) -> RunInfo:
        """Its `run.json`, with its current state."""
        return self.trace.info


def read_runs(runs: Sequence[RunDir], probe: Probe, notify: Notify) -> list[ReportRun]:
    """Read runs, and group those that are repeats of each other.

    Args:
        runs: The runs.
        probe: Returns the status of a run that is not collected.
        notify: Receives warnings.

    Raises:
        LabError: A `run.json` is missing or unreadable.
    """
    return grouped([read_run(NamedRun(run, is_own=True), probe, notify) for run in runs])


def grouped(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Return the runs with their groups: runs of a label that are repeats of each other."""
    names = group_names([each.info for each in runs])
    groups = [
        f"{each.prefix}: {name}" if each.prefix else name
        for each, name in zip(runs, names, strict=True)
    ]
    return [
        replace(each, trace=replace(each.trace, group=group))
        for each, group in zip(runs, groups, strict=True)
    ]


def read_run(named: NamedRun, probe: Probe, notify: Notify) -> ReportRun:
    """Read one run.

    Raises:
        LabError: A file of the run is missing or unreadable.
    """
    run = named.directory
    status = status_or_warn(run, probe, notify)
    info = status.info
    records = records_frame(run, notify=notify)
    steps, left_out = steps_of(info, records)
    samples = samples_of(info, read_records(run.gpu_samples))
    trace = Trace(named.name, info.spec.experiment, info, steps, samples, (), left_out)
    trace = replace(trace, evaluations=evaluations_of(info, records))
    marks = marks_of(trace, records)
    summary = sum_up(run, info, status.statuses)
    rates = records["learning_rate"].dropna()
    return ReportRun(
        run,
        summary,
        replace(trace, marks=marks, tasks=summary.tasks),
        note=status.note,
        damaged=records.attrs.get(DAMAGED, ()),
        not_done=not_done(info, marks),
        learning_rate=float(rates.iloc[0]) if len(rates) else None,
        label=named.label,
        prefix=named.group,
    )


def by_group(runs: Sequence[ReportRun]) -> Mapping[str, list[ReportRun]]:
    """Return group to its runs, in order of appearance."""
    found: dict[str, list[ReportRun]] = {}
    for each in runs:
        found.setdefault(each.trace.group, []).append(each)
    return found


_NOT_COMPARED: Final = frozenset({"seed"})


def group_names(runs: Sequence[RunInfo]) -> list[str]:
    """Return a group name for each run; runs that differ only by their seed share it.

    It is the experiment's name with the settings that differ between its groups.
    """
    traits: dict[str, list[Mapping[str, str]]] = {}
    for info in runs:
        traits.setdefault(info.spec.experiment, []).append(_traits(info))
    names = []
    for info in runs:
        own, same = _traits(info), traits[info.spec.experiment]
        keys = dict.fromkeys(key for other in same for key in other)
        differing = [key for key in keys if len({other.get(key) for other in same}) > 1]
        parts = [f"{key} {own[key]}" for key in differing if own.get(key)]
        names.append(", ".join([info.spec.experiment, *parts]))
    return names


def _traits(info: RunInfo) -> Mapping[str, str]:
    """Return the settings of a run, as texts."""
    return {
        **{f"{job} tasks": str(len(tasks)) for job, tasks in info.cluster.items()},
        "cluster": info.cluster_file or info.cluster_sha256[:8],
        "backend": info.backend,
        "faults": "; ".join(map(str, info.spec.faults)),
        "start": "; ".join(f"{task}: {when}" for task, when in info.spec.start.items()),
        "on failure": str(info.spec.on_failure),
        "data": info.spec.data_dir,
        **{
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in info.hyperparameters.items()
            if name not in _NOT_COMPARED
        },
    }
