"""Reads the files of runs for a report, and the marks of faults, late starts and restarts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from lab.base.text import short
from lab.protocol.experiments.faults import DONE, OVER, parse
from lab.protocol.records.reader import read_records
from lab.runner.status import status_or_warn
from lab.runner.store.dataframe import DAMAGED, records_frame
from lab.runner.store.directory import Probe, RunDir
from lab.runner.store.names import NamedRun, without_copies
from lab.runner.store.run_info import RunInfo
from lab.runner.store.settings import settings_of
from lab.runner.store.summarize import sum_up
from lab.runner.store.summary import Summary
from lab.study.plots.data import Mark, Trace, tidy

_CONFIG: Final = "config"


@dataclass(frozen=True, slots=True)
class ReportRun:
    """One run, as the report shows it.

    Attributes:
        run: Its directory.
        summary: Its summary.
        trace: The data of its figures.
        note: A note on its state, or "".
        damaged: A text for each damaged line of its records, with its location.
        learning_rate: The learning rate that its tasks record; None if they record none.
        label: The user's name for it, or "".
        prefix: The label of all runs of its group, or "".
        settings: Its settings; see `lab.runner.store.settings`.
    """

    run: RunDir
    summary: Summary
    trace: Trace
    note: str = ""
    damaged: Sequence[str] = ()
    learning_rate: float | None = None
    label: str = ""
    prefix: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The label, or the run's id."""
        return self.label or self.info.run_id

    @property
    def group(self) -> str:
        """The name of its group."""
        return self.trace.group

    @property
    def accuracy(self) -> float | None:
        """The accuracy of a run that succeeded and did not diverge; None if it is not known."""
        value = self.summary.accuracy
        is_known = self.trace.has_result and value is not None and math.isfinite(value)
        return value if is_known else None

    @property
    def info(self) -> RunInfo:
        """Its `run.json`, with its current state."""
        return self.trace.info


def read_runs(runs: Sequence[RunDir], probe: Probe) -> list[ReportRun]:
    """Read runs without copies, and group those that are repeats of each other.

    Args:
        runs: The runs.
        probe: Returns the status of a run that is not collected.

    Raises:
        LabError: A `run.json` is missing or unreadable.
    """
    named = [NamedRun(run, is_own=True, origin=short(str(run.path.parent))) for run in runs]
    return with_groups([read_run(run, probe) for run in without_copies(named)])


def with_groups(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Return the runs with their groups: runs of a label that are repeats of each other."""
    names = group_names(runs)
    groups = [
        f"{each.prefix}: {name}" if each.prefix else name
        for each, name in zip(runs, names, strict=True)
    ]
    return [
        replace(each, trace=replace(each.trace, group=group))
        for each, group in zip(runs, groups, strict=True)
    ]


def read_run(named: NamedRun, probe: Probe) -> ReportRun:
    """Read one run.

    Raises:
        LabError: A file of the run is missing or unreadable.
    """
    run = named.directory
    status = status_or_warn(run, probe)
    info = status.info
    records = records_frame(run)
    data, left_out = tidy(info, records, read_records(run.gpu_samples, info.times))
    trace = Trace(named.name, info.spec.experiment, info, data, left_out=left_out)
    marks = marks_of(trace, records)
    summary = sum_up(run, info, status.statuses)
    rates = records["learning_rate"].dropna()
    return ReportRun(
        run,
        summary,
        replace(trace, marks=marks, tasks=summary.tasks),
        note=status.note,
        damaged=records.attrs.get(DAMAGED, ()),
        learning_rate=float(rates.iloc[0]) if len(rates) else None,
        label=named.label,
        prefix=named.group,
        settings=settings_of(run, info),
    )


def group_names(runs: Sequence[ReportRun]) -> list[str]:
    """Return a group name for each run; runs with the same settings share it.

    It is the experiment's name with the settings that differ between its groups. A config has the
    name of its file, if no other config has it.
    """
    experiments: dict[str, list[Mapping[str, str]]] = {}
    for run in runs:
        experiments.setdefault(run.info.spec.experiment, []).append(run.settings)
    configs = {run.settings.get(_CONFIG, ""): Path(run.info.cluster_file).name for run in runs}
    uses = Counter(configs.values())
    names = []
    for run in runs:
        experiment, own = run.info.spec.experiment, run.settings
        config = configs[own.get(_CONFIG, "")]
        shown = {**own, _CONFIG: config} if uses[config] == 1 and config else own
        keys = dict.fromkeys(chain.from_iterable(experiments[experiment]))
        differing = [
            key for key in keys if len({other.get(key) for other in experiments[experiment]}) > 1
        ]
        parts = [f"{key} {shown[key]}" for key in differing if key in own]
        names.append(", ".join([experiment, *parts]))
    return names


_LONGEST: Final = 160  # maximum length of a text


def marks_of(trace: Trace, records: pd.DataFrame) -> tuple[Mark, ...]:
    """Return the marks of injected faults, late starts and restarted programs.

    Args:
        trace: The run; a fault without an end lasts until the end of the run.
        records: All its records, as `lab.runner.store.dataframe` reads them.
    """
    restarts = [*_restarts(trace.info, records)]
    found = [*_faults(trace, records, restarts), *_late_starts(trace), *restarts]
    return tuple(sorted(found, key=lambda mark: (mark.begin, mark.task)))


def _events(info: RunInfo, records: pd.DataFrame) -> Iterator[tuple[str, float, str]]:
    """Yield task, seconds of the run and message of each event."""
    rows = records[(records["kind"] == "event") & records["message"].notna()]
    seconds = rows["time_unix"] - info.zero_unix
    for task, when, message in zip(rows["task"], seconds, rows["message"], strict=True):
        if np.isfinite(when):
            yield str(task), float(when), str(message)


def _faults(trace: Trace, records: pd.DataFrame, restarts: Sequence[Mark]) -> Iterator[Mark]:
    """Yield the faults; one that ends a program lasts until the program runs again."""
    events, end = list(_events(trace.info, records)), trace.end
    over = [(task, when, text) for task, when, text in events if text.startswith(OVER)]
    for task, when, message in events:
        if not message.startswith(DONE):
            continue
        text = message.removeprefix(DONE)
        ends = (at for name, at, line in over if (name, line) == (task, OVER + text) and at >= when)
        lasts_s = 0.0
        with suppress(ValueError):  # another version of lab may know more faults
            lasts_s = parse(text).seconds
        again = (each.begin for each in restarts if each.task == task and each.begin > when)
        over_s = min(when + lasts_s, max(end, when)) if lasts_s else next(again, when)
        until = next(ends, over_s)
        yield Mark(task, "fault", short(text, _LONGEST), when, until if until > when else None)


def _late_starts(trace: Trace) -> Iterator[Mark]:
    """Yield the first step of each task with a later start."""
    for task, when in trace.info.spec.start.items():
        if task in trace.workers:
            text = f"starts training, as scheduled: {short(when, _LONGEST)}"
            yield Mark(task, "late start", text, trace.first_step(task))


def _restarts(info: RunInfo, records: pd.DataFrame) -> Iterator[Mark]:
    """Yield the first record of every further attempt."""
    again = records[records["attempt"].fillna(0) > 0]
    first = again.groupby(["task", "attempt"])["time_unix"].min().reset_index()
    for task, attempt, begin in first.itertuples(index=False):
        if np.isfinite(begin):
            text = f"program restarted (attempt {int(attempt) + 1})"
            yield Mark(str(task), "new start", text, float(begin) - info.zero_unix)
