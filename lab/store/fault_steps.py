"""Count the steps that each fault of a run met; a fault can be over before the first step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from math import inf
from typing import Any, Final, NamedTuple

from lab.experiments.faults import Fault
from lab.records.reader import STEPS, is_whole
from lab.store.progress import TaskProgress
from lab.store.run_info import RunInfo
from lab.store.summary import FaultSummary
from lab.text import short


class _Mark(NamedTuple):
    """The end of a step: its time, the task's step count, and the attempt of its program."""

    time: float
    step: int
    attempt: object


_START: Final = _Mark(inf, 0, -1)
"""Comes before the first step record: a fault that is over by then meets no step."""


def faults_met(
    info: RunInfo,
    progress: Mapping[str, TaskProgress],
    records: Callable[[str], Iterable[Mapping[str, Any]]],
) -> list[FaultSummary]:
    """Count the steps that each task made during each fault.

    A fault in a task of a job that records no steps, such as ps, counts for every task that does.

    Args:
        info: The run.
        progress: The progress of each task.
        records: Returns the records of a task.
    """
    trained = [task for task, value in progress.items() if value.has_trained]
    jobs = {task.rpartition("-")[0] for task in trained}
    concerned: dict[str, list[tuple[Fault, float]]] = {}
    for task, value in progress.items():
        affected = [task] if task.rpartition("-")[0] in jobs else trained or [task]
        for name in affected:
            concerned.setdefault(name, []).extend(value.faults)
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
    """Count the steps of one task during each fault, from each step record to the next."""
    met = {fault: 0 for fault, _ in begun}
    for last, mark in pairwise(chain([_START], _marks(records))):
        steps = max(mark.step - last.step, 1) if mark.attempt == last.attempt else 1
        for fault in {fault for fault, begin in begun if _meets(fault, begin, last, mark)}:
            met[fault] += steps
    return met


def _marks(records: Iterable[Mapping[str, Any]]) -> Iterator[_Mark]:
    """Yield a mark for each step record, then one for a step that was under way at the end."""
    step = 0
    for record in records:
        time, local_step, attempt = map(record.get, ("time_unix", "local_step", "attempt"))
        if record.get("kind") in STEPS and time is not None:
            step = local_step if is_whole(local_step) else step
            yield _Mark(time, step, attempt)
    yield _Mark(inf, step, -1)


def _meets(fault: Fault, begin: float, last: _Mark, mark: _Mark) -> bool:
    """Whether a fault meets the steps between two marks.

    A task makes no steps between two attempts, so a fault that is over by the first step of the new
    attempt meets none. But a kill or a stop meets the step that it interrupts.
    """
    interrupts = not fault.seconds
    since = last.time if interrupts or mark.attempt == last.attempt else mark.time
    return begin <= mark.time and since <= begin + fault.seconds
