"""The start schedule: the tasks of a run that start later than the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from lab.errors import InputError
from lab.experiments.trigger import Trigger, parse_trigger
from lab.formatting import counted
from lab.text import suggestion
from lab.volume import chief_of

PS: Final = "ps"
WORKER: Final = "worker"
_FORM: Final = "TASK: MOMENT; …, such as worker-1: 10s; worker-2: after 500 steps"


def start_error(task: str, when: Trigger, tasks: Collection[str]) -> str | None:
    """Return why a task cannot start at this moment, with the hint; None if it can.

    Args:
        task: One of the tasks.
        when: When it starts.
        tasks: All tasks of the cluster.
    """
    if when.steps is None:
        return None
    if task == chief_of(tasks) or task.rpartition("-")[0] == PS:
        return f"the others make no step without {task}; give it a time, such as 10s"
    return None


def parse_start(text: str) -> dict[str, str]:
    """Parse `worker-1: 10s; worker-2: after 500 steps`.

    Returns:
        Task to moment, in normal form.

    Raises:
        ValueError: The text does not have this form.
    """
    if not text.strip():
        raise ValueError(_FORM)
    found: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        task, colon, moment = part.partition(":")
        if not colon:
            raise ValueError(_FORM)
        found[task.strip()] = str(parse_trigger(moment.strip()))
    return found


def check_joins(
    start: Mapping[str, str], workers: Sequence[str], *, own_steps: int, all_steps: int
) -> None:
    """Check that the run reaches every step after which a worker joins.

    Args:
        start: Task to moment.
        workers: All workers; every step of each worker increments the global step.
        own_steps: Steps of each worker.
        all_steps: The global step at which all workers end; 0 if there is no such limit.

    Raises:
        InputError: The others end before one of these steps.
    """
    joins = {task: parse_trigger(start[task]).steps for task in workers if task in start}
    for task, steps in joins.items():
        if steps is None:
            continue
        before = [other for other in workers if (joins.get(other) or 0) < steps]
        most = all_steps or own_steps * len(before)
        if steps > most:
            raise InputError(
                f"--start: {task}: the others make only {counted(most, 'step')}, not {steps:,}",
                "give a smaller step, or train longer",
            )


def check_start(start: Mapping[str, str], tasks: Sequence[str]) -> None:
    """Check that a schedule fits a cluster.

    Raises:
        InputError: It names an unknown task, or one that cannot start at that moment.
    """
    for task, text in start.items():
        if task not in tasks:
            fix = suggestion(task, tasks).strip() or f"use one of {', '.join(tasks)}"
            raise InputError(f"--start: there is no task {task!r}", fix)
        if message := start_error(task, parse_trigger(text), tasks):
            raise InputError(f"--start: {task}: {message.partition('; ')[0]}", "give it a time")
