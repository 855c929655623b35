"""A run's files, read once for a report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lab.backends import Say
from lab.figures.trace import Trace, samples_of, steps_of
from lab.report.marking import marks_of, not_done
from lab.run.frame import DAMAGED, records_frame
from lab.run.progress import read_records
from lab.run.run_info import RunInfo
from lab.run.standing import Ask, told
from lab.run.store import RunDir
from lab.run.summarize import sum_up
from lab.run.summary import Summary
from lab.task.states import State

_WHY: Final[Mapping[str, str]] = {
    State.FAILED: "Why it failed",
    State.LOST: "Why it was lost",
    State.CANCELLED: "Why it was cancelled",
}


@dataclass(frozen=True, slots=True)
class Reported:
    """One run, as the report shows it.

    Attributes:
        run: Its directory.
        summary: What it came to.
        trace: What its figures are drawn from.
        notes: What a reader has to know of it, a sentence each.
        learning_rate: What its tasks say that they train with; None where they do not.
    """

    run: RunDir
    summary: Summary
    trace: Trace
    notes: tuple[str, ...]
    learning_rate: float | None = None

    @property
    def info(self) -> RunInfo:
        """Its `run.json`, with the state that it is in."""
        return self.trace.info


def read_runs(runs: Sequence[RunDir], ask: Ask, say: Say) -> list[Reported]:
    """Read runs, and find out which are repeats of one another.

    Args:
        runs: Which.
        ask: Tells how a run stands that has not been brought home.
        say: Receives what is noticed on the way.

    Raises:
        LabError: A `run.json` is missing or unreadable.
    """
    read = [_read(run, ask, say) for run in runs]
    groups = group_names([each.info for each in read])
    return [
        replace(each, trace=replace(each.trace, group=group))
        for each, group in zip(read, groups, strict=True)
    ]


def _read(run: RunDir, ask: Ask, say: Say) -> Reported:
    standing = told(run, ask, say)
    info = standing.info
    records = records_frame(run, say=say)
    steps, left_out = steps_of(info, records)
    samples = samples_of(info, read_records(run.gpu_samples))
    trace = Trace(run.run_id, info.spec.experiment, info, steps, samples, (), left_out)
    marks = marks_of(info, records, trace.end)
    trace = replace(trace, marks=marks)
    summary = sum_up(run, info, standing.statuses)
    damaged: Sequence[str] = records.attrs.get(DAMAGED, ())
    notes = tuple(_notes(trace, summary, damaged, standing.note))
    rates = records["learning_rate"].dropna()
    return Reported(run, summary, trace, notes, float(rates.iloc[0]) if len(rates) else None)


def _notes(trace: Trace, summary: Summary, damaged: Sequence[str], note: str) -> list[str]:
    info, found = trace.info, []
    if not info.state.ended:
        found.append(f"It has not ended: all of this is how it stands now ({info.state}).")
    if note:
        found.append(f"{note[:1].upper()}{note[1:]}.")
    if summary.reason:
        found.append(f"{_WHY.get(summary.state, 'Its state')}: {summary.reason}.")
    if summary.degraded:
        found.append("It succeeded without all of its tasks.")
    if summary.records_lost:
        found.append(f"{summary.records_lost:,} records are missing, by their sequence numbers.")
    if damaged:
        found.append(f"Damaged lines among its records: {len(damaged):,}, the first: {damaged[0]}.")
    if trace.left_out:
        found.append(f"{trace.left_out:,} records have no usable time, and are not drawn.")
    found += [f"No record tells of the fault that it was given: {text}." for text in
              not_done(info, trace.marks)]  # fmt: skip
    return found


def by_group(runs: Sequence[Reported]) -> Mapping[str, list[Reported]]:
    """Group to its runs, in order of appearance."""
    found: dict[str, list[Reported]] = {}
    for each in runs:
        found.setdefault(each.trace.group, []).append(each)
    return found


_NOT_COMPARED: Final = frozenset({"seed"})


def group_names(runs: Sequence[RunInfo]) -> list[str]:
    """A name for each run; runs that differ by their seed alone have the same.

    A name is the experiment's, and whatever else tells its groups apart.
    """
    traits = [_traits(info) for info in runs]
    names = []
    for info, own in zip(runs, traits, strict=True):
        same = [
            other for each, other in zip(runs, traits, strict=True)
            if each.spec.experiment == info.spec.experiment
        ]  # fmt: skip
        keys = dict.fromkeys(key for other in same for key in other)
        differing = [key for key in keys if len({other.get(key) for other in same}) > 1]
        parts = [f"{key} {own[key]}" for key in differing if own.get(key)]
        names.append(", ".join([info.spec.experiment, *parts]))
    return names


def _traits(info: RunInfo) -> Mapping[str, str]:
    """All that makes a run what it is, as texts."""
    given = {
        name: _text(value)
        for name, value in info.hyperparameters.items()
        if name not in _NOT_COMPARED
    }
    workers = {job: str(len(tasks)) for job, tasks in info.cluster.items()}
    cluster = {"cluster": info.cluster_file or info.cluster_sha256[:8]}
    return {
        **{f"{job} tasks": count for job, count in workers.items()},
        **cluster,
        "backend": info.backend,
        "faults": "; ".join(map(str, info.spec.faults)),
        "start": "; ".join(f"{task}: {when}" for task, when in info.spec.start.items()),
        "on failure": str(info.spec.on_failure),
        "data": info.spec.data_dir,
        **given,
    }


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
