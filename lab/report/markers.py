"""The marks of a run on its time axis: faults, late starts and restarts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from lab.experiments.faults import DONE, OVER, Fault, Kind, parse
from lab.plots.data import Mark, Trace, first_step, zero_of
from lab.store.run_info import RunInfo
from lab.text import short

_LONGEST: Final = 160  # maximum length of a text


def marks_of(trace: Trace, records: pd.DataFrame) -> tuple[Mark, ...]:
    """Return the marks of injected faults, late starts and restarted programs.

    Args:
        trace: The run; a fault without an end lasts until the end of the run.
        records: All its records, as `lab.store.dataframe` reads them.
    """
    found = [*_faults(trace, records), *_late_starts(trace), *_restarts(trace.info, records)]
    return tuple(sorted(found, key=lambda mark: (mark.begin, mark.task)))


def not_done(info: RunInfo, marks: tuple[Mark, ...]) -> list[str]:
    """Return the requested faults without a record."""
    done = {mark.text for mark in marks if mark.what == "fault"}
    return [text for fault in info.spec.faults if (text := short(fault, _LONGEST)) not in done]


def _events(info: RunInfo, records: pd.DataFrame) -> Iterator[tuple[str, float, str]]:
    """Yield task, seconds of the run and message of each event."""
    rows = records[(records["kind"] == "event") & records["message"].notna()]
    seconds = rows["time_unix"] - zero_of(info)
    for task, when, message in zip(rows["task"], seconds, rows["message"], strict=True):
        if np.isfinite(when):
            yield str(task), float(when), str(message)


def _faults(trace: Trace, records: pd.DataFrame) -> Iterator[Mark]:
    events, end = list(_events(trace.info, records)), trace.end
    over = [(task, when, text) for task, when, text in events if text.startswith(OVER)]
    for task, when, message in events:
        if not message.startswith(DONE):
            continue
        text = message.removeprefix(DONE)
        ends = (at for name, at, line in over if (name, line) == (task, OVER + text) and at >= when)
        fault = _parsed(text)
        until = next(ends, min(when + (fault.seconds if fault else 0.0), max(end, when)))
        lasts = until > when
        yield Mark(
            task,
            "fault",
            short(text, _LONGEST),
            when,
            until if lasts else None,
            stands_still=lasts and fault is not None and fault.kind is Kind.PAUSE,
        )


def _parsed(text: str) -> Fault | None:
    """Parse the fault of a text; None if it has none."""
    try:
        return parse(text)
    except ValueError:
        return None


def _late_starts(trace: Trace) -> Iterator[Mark]:
    """Yield the first step of each task with a later start."""
    for task, when in trace.info.spec.start.items():
        steps = trace.of(task)
        if len(steps):
            text = f"starts training, as scheduled: {short(when, _LONGEST)}"
            yield Mark(task, "late start", text, first_step(steps))


def _restarts(info: RunInfo, records: pd.DataFrame) -> Iterator[Mark]:
    """Yield the first record of every further attempt."""
    again = records[records["attempt"].fillna(0) > 0]
    first = again.groupby(["task", "attempt"])["time_unix"].min().reset_index()
    for task, attempt, begin in first.itertuples(index=False):
        if np.isfinite(begin):
            text = f"program restarted (attempt {int(attempt) + 1})"
            yield Mark(str(task), "new start", text, float(begin) - zero_of(info))
