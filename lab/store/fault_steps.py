"""How many steps each fault of a run met: it may be over before the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from typing import Any, Final

from lab.experiments.faults import Fault
from lab.records.reader import STEPS, is_whole
from lab.store.progress import TaskProgress
from lab.store.run_info import RunInfo
from lab.store.summary import FaultSummary
from lab.text import short

_END: Final = {"kind": "step", "time_unix": inf, "attempt": -1}


def faults_met(
    info: RunInfo,
    progress: Mapping[str, TaskProgress],
    records: Callable[[str], Iterable[Mapping[str, Any]]],
) -> list[FaultSummary]:
    """Count the steps that each task made during each fault.

    A fault of a job that records no steps, such as ps, concerns all tasks that do.

    Args:
        info: The run.
        progress: The progress of each task.
        records: Returns the records of a task.
    """
    trained = [task for task, value in progress.items() if value.has_trained]
    jobs = {task.rpartition("-")[0] for task in trained}
    concerned: dict[str, list[tuple[Fault, float]]] = {}
    for task, value in progress.items():
        for each in [task] if task.rpartition("-")[0] in jobs else trained or [task]:
            concerned.setdefault(each, []).extend(value.faults)
    met = {
        (fault.text, task): steps
        for task, begun in concerned.items()
        for fault, steps in (_steps_met(begun, records(task)) if begun else {}).items()
    }
    missing = set(info.spec.faults if info.state.ended else ()).difference(text for text, _ in met)
    return [
        *(FaultSummary(text, task, steps) for (text, task), steps in sorted(met.items())),
        *(FaultSummary(short(text), "", 0) for text in sorted(missing)),
    ]


def _steps_met(
    begun: Sequence[tuple[Fault, float]], records: Iterable[Mapping[str, Any]]
) -> dict[Fault, int]:
    """Count the steps of one task during each fault.

    Steps last from one step record to the next. An ended program does not record its last step.
    """
    met = {fault: 0 for fault, _ in begun}
    last, made, of_attempt = inf, 0, None
    for record in chain(records, [_END]):
        time, step, attempt = map(record.get, ("time_unix", "local_step", "attempt"))
        if record.get("kind") not in STEPS or time is None:
            continue
        follows = attempt == of_attempt
        passed = max(step - made, 1) if follows and is_whole(step) else 1
        for fault in {
            fault
            for fault, begin in begun
            if begin <= time
            and (last if follows or not fault.seconds else time) <= begin + fault.seconds
        }:
            met[fault] += passed
        last, made, of_attempt = time, step if is_whole(step) else made, attempt
    return met
