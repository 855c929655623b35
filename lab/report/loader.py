"""A run's files, read once for a report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lab.plots.data import Trace, samples_of, steps_of
from lab.report.markers import marks_of, not_done
from lab.run.dataframe import DAMAGED, records_frame
from lab.run.progress import read_records
from lab.run.run_info import RunInfo
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
        summary: What it came to.
        trace: What its figures are drawn from.
        note: What is to be said of its state, or "".
        damaged: A text for each damaged line among its records, with its place.
        not_done: The faults that it was given and that no record tells of.
        learning_rate: What its tasks say that they train with; None where they do not.
    """

    run: RunDir
    summary: Summary
    trace: Trace
    note: str = ""
    damaged: Sequence[str] = ()
    not_done: Sequence[str] = ()
    learning_rate: float | None = None

    @property
    def info(self) -> RunInfo:
        """Its `run.json`, with the state that it is in."""
        return self.trace.info


def read_runs(runs: Sequence[RunDir], ask: Probe, notify: Notify) -> list[ReportRun]:
    """Read runs, and find out which are repeats of one another.

    Args:
        runs: Which.
        ask: Tells how a run stands that has not been brought home.
        notify: Receives what is noticed on the way.

    Raises:
        LabError: A `run.json` is missing or unreadable.
    """
    read = [_read(run, ask, notify) for run in runs]
    groups = group_names([each.info for each in read])
    return [
        replace(each, trace=replace(each.trace, group=group))
        for each, group in zip(read, groups, strict=True)
    ]


def _read(run: RunDir, ask: Probe, notify: Notify) -> ReportRun:
    standing = status_or_warn(run, ask, notify)
    info = standing.info
    records = records_frame(run, notify=notify)
    steps, left_out = steps_of(info, records)
    samples = samples_of(info, read_records(run.gpu_samples))
    trace = Trace(run.run_id, info.spec.experiment, info, steps, samples, (), left_out)
    marks = marks_of(trace, records)
    rates = records["learning_rate"].dropna()
    return ReportRun(
        run,
        sum_up(run, info, standing.statuses),
        replace(trace, marks=marks),
        note=standing.note,
        damaged=records.attrs.get(DAMAGED, ()),
        not_done=not_done(info, marks),
        learning_rate=float(rates.iloc[0]) if len(rates) else None,
    )


def by_group(runs: Sequence[ReportRun]) -> Mapping[str, list[ReportRun]]:
    """Group to its runs, in order of appearance."""
    found: dict[str, list[ReportRun]] = {}
    for each in runs:
        found.setdefault(each.trace.group, []).append(each)
    return found


_NOT_COMPARED: Final = frozenset({"seed"})


def group_names(runs: Sequence[RunInfo]) -> list[str]:
    """A name for each run; runs that differ by their seed alone have the same.

    A name is the experiment's, and whatever else tells its groups apart.
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
    """All that makes a run what it is, as texts."""
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
