"""What happened to a run's tasks on purpose, or by accident, as marks on its clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from lab.figures.trace import Mark, zero_of
from lab.run.run_info import RunInfo
from lab.task.faults import DONE, OVER, Fault, Kind, concrete
from lab.task.text import short

_LONGEST: Final = 160  # characters of a text
_STEPS: Final = ("step", "epoch")


def marks_of(info: RunInfo, records: pd.DataFrame, end: float) -> tuple[Mark, ...]:
    """Faults that were done, tasks that began late, programs that were started again.

    Args:
        info: The run.
        records: All of its records, as `lab.run.frame` reads them.
        end: The last moment of the run, in seconds of it: what nothing ends holds until then.
    """
    found = [*_faults(info, records, end), *_late_starts(info, records), *_restarts(info, records)]
    return tuple(sorted(found, key=lambda mark: (mark.begin, mark.task)))


def not_done(info: RunInfo, marks: tuple[Mark, ...]) -> list[str]:
    """The faults that the run was given and that no record tells of."""
    done = {mark.text for mark in marks if mark.what == "fault"}
    return [text for fault in info.spec.faults if (text := short(str(fault), _LONGEST)) not in done]


def _events(info: RunInfo, records: pd.DataFrame) -> Iterator[tuple[str, float, str]]:
    """Task, seconds of the run and message of each event."""
    rows = records[(records["kind"] == "event") & records["message"].notna()]
    seconds = rows["time_unix"] - zero_of(info)
    for task, when, message in zip(rows["task"], seconds, rows["message"], strict=True):
        if np.isfinite(when):
            yield str(task), float(when), str(message)


def _faults(info: RunInfo, records: pd.DataFrame, end: float) -> Iterator[Mark]:
    events = list(_events(info, records))
    over = [(task, when, text) for task, when, text in events if text.startswith(OVER)]
    for task, when, message in events:
        if not message.startswith(DONE):
            continue
        text = message.removeprefix(DONE)
        ends = (at for who, at, said in over if (who, said) == (task, OVER + text) and at >= when)
        fault = _told(text)
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


def _told(text: str) -> Fault | None:
    """The fault that a text tells of; None where it tells of none."""
    try:
        return concrete(text)
    except ValueError:
        return None


def _late_starts(info: RunInfo, records: pd.DataFrame) -> Iterator[Mark]:
    """The first step of each task that was to start later than the others."""
    for task, when in info.spec.start.items():
        rows = records[(records["task"] == task) & records["kind"].isin(_STEPS)]
        rows = rows[rows["time_unix"].notna()].head(1)
        for _, row in rows.iterrows():
            first = float(row["time_unix"]) - zero_of(info)
            made, each = row["local_step"], row["step_time_s"]
            if pd.notna(made) and pd.notna(each):
                first -= float(made) * float(each)
            if np.isfinite(first):
                text = f"begins to train, as scheduled: {short(str(when), _LONGEST)}"
                yield Mark(str(task), "late start", text, first)


def _restarts(info: RunInfo, records: pd.DataFrame) -> Iterator[Mark]:
    """The first record of every further attempt."""
    again = records[(records["attempt"] > 0).fillna(value=False).to_numpy(bool)]
    for task in again["task"].unique():
        of_task = again[again["task"] == task]
        for attempt in sorted(set(of_task["attempt"].astype(int))):
            rows = of_task[of_task["attempt"] == attempt]
            begin = float(rows["time_unix"].min()) - zero_of(info)
            if np.isfinite(begin):
                text = f"its program is started again (attempt {attempt + 1})"
                yield Mark(str(task), "new start", text, begin)
