"""When a task's program may start, train, and start again: pure functions over the statuses.

Each agent reads the statuses of all tasks and decides for its own task, several times a second. No
agent gives another one an order. The functions have these arguments in common::

    request     the run
    task        the agent's own task
    statuses    the status of each task
    elapsed_s   seconds since the run was submitted
"""

from __future__ import annotations

import re
from typing import Final

from lab.protocol.experiments.faults import Trigger, parse_trigger
from lab.protocol.volume import Request, TaskStatus
from lab.protocol.volume.run_spec import registered
from lab.protocol.volume.states import ENDED, Cause, State
from lab.protocol.volume.status import TaskStatuses

_READY: Final = frozenset({State.READY, State.TRAINING})
NOT_YET: Final = frozenset({State.PENDING, State.STARTING})
STOPPED: Final = "is stopped (SIGSTOP)"
"""The message of a program that something other than the lab has stopped."""

UNDER_FAULT: Final = "is under the fault "
"""The beginning of the message of a program that an injected fault stops, slows or cuts off."""

# Failures that every attempt repeats: an import, the syntax, or an argument, which argparse refuses
# with exit code 2, and absl in words.
_MISTAKE: Final = re.compile(
    r"^exit code 2\b|Flags parsing|\b(?:ModuleNotFound|Import|Syntax|Indentation|\w+Flag\w*)Error: "
)
# Failures that the next attempt may not have.
_PASSING: Final = re.compile(r"(?i)connection (?:reset|refused|closed)|unreachable|timed?[ -]?out")

_ALL_RESTART: Final = ", so all tasks restart together"


def may_start(request: Request, task: str, statuses: TaskStatuses, elapsed_s: float) -> bool:
    """Whether the task's program may be started.

    If all tasks restart together, no old program may be running. A program that can wait for a step
    is started before this step, and joins at it.
    """
    trigger = _trigger(request, task, statuses)
    waits_itself = trigger is not None and trigger.steps is not None and request.spec.waits
    may = waits_itself or _is_reached(trigger, request, statuses, elapsed_s)
    return may and not _tasks_behind(request, task, statuses)


def may_train(request: Request, task: str, statuses: TaskStatuses, elapsed_s: float) -> bool:
    """Whether the task may train: its start time is reached, and all unscheduled tasks are ready.

    The tasks do not wait for a task with a scheduled start: it joins later.
    """
    return not _waits_for_moment(request, task, statuses, elapsed_s) and all(
        statuses[other].state in _READY or statuses[other].state.ended
        for other in request.tasks()
        if other not in request.spec.start
    )


def joins_at(request: Request, task: str, statuses: TaskStatuses) -> int | None:
    """The global step that the program must wait for itself once it may train, or None."""
    trigger = _trigger(request, task, statuses)
    experiment = registered(request.spec)
    return trigger.steps if trigger and experiment and experiment.joins_at_step else None


def waits_for(request: Request, task: str, statuses: TaskStatuses, elapsed_s: float) -> str:
    """What a task waits for before it may start or train, as text."""
    if _waits_for_moment(request, task, statuses, elapsed_s):
        trigger = _trigger(request, task, statuses)
        at_a_time = trigger is not None and trigger.steps is None
        return f"waits: it starts {trigger}{' after the others' * at_a_time}"
    missing = _tasks_behind(request, task, statuses) or [
        other
        for other in request.tasks()
        if other not in request.spec.start and statuses[other].state in NOT_YET
    ]
    return f"waits for {', '.join(missing)}"


def waits_for_time(request: Request, task: str, statuses: TaskStatuses, elapsed_s: float) -> bool:
    """Whether the task's start is scheduled for a time that has not come."""
    trigger = _trigger(request, task, statuses)
    return trigger is not None and trigger.steps is None and not trigger.has_come(elapsed_s, None)


def awaited_task(request: Request, statuses: TaskStatuses) -> str | None:
    """The task whose program the others wait for, while every program runs; else None.

    A missing agent is detected by its heartbeat, and a scheduled start is not a delay. Of several
    tasks, it is one that cannot go on, else a service, else the chief, which the others need.
    """
    chief, schedule = request.chief, request.spec.start
    for task in request.tasks():
        is_needed = task not in schedule or task == chief or request.spec.is_service(task)
        if is_needed and statuses[task].state is State.PENDING:
            return None
    starting = [task for task in request.tasks() if statuses[task].state is State.STARTING]
    return min(
        starting,
        key=lambda task: (
            not is_hindered(statuses[task]),
            not request.spec.is_service(task),
            task != chief,
        ),
        default=None,
    )


def is_hindered(status: TaskStatus) -> bool:
    """Whether a task cannot go on, because its program is stopped or under a fault."""
    return status.message.startswith((STOPPED, UNDER_FAULT))


def is_late(request: Request, task: str, statuses: TaskStatuses, awaited_s: float) -> bool:
    """Whether the start takes too long because of this task, so that its agent reports it.

    Args:
        request: The run.
        task: The agent's own task.
        statuses: The status of each task.
        awaited_s: Seconds for which there was an `awaited_task`.
    """
    return 0 < request.spec.ready_s <= awaited_s and task == awaited_task(request, statuses)


def is_steady(request: Request, statuses: TaskStatuses) -> bool:
    """Whether the training continues and nothing is due, so that the agent may poll less often.

    After the first end it must poll fast: a service must notice the last end soon.
    """
    states = {status.state for status in statuses.values()}
    is_training = State.TRAINING in states and not any(state.ended for state in states)
    return is_training and not request.spec.faults


def highest_global_step(request: Request, statuses: TaskStatuses) -> int | None:
    """The highest global step of a run, or None before the first step."""
    steps = [statuses[task].global_step for task in request.others()]
    return max((step for step in steps if step is not None), default=None)


def trains(request: Request, task: str, status: TaskStatus, step: int | None) -> bool:
    """Whether a task has begun to make steps.

    A parameter server makes none, and of ranks, which step together, perhaps only one reports them.
    They begin with the run's first step.

    Args:
        request: The run.
        task: The task.
        status: Its status.
        step: The run's highest global step, or None before the first one.
    """
    shares = request.spec.has_ranks or request.spec.is_service(task)
    return (step if shares else status.global_step) is not None


def _trigger(request: Request, task: str, statuses: TaskStatuses) -> Trigger | None:
    """The scheduled start; None if there is none, or if an earlier attempt has made a step.

    A restarted run may be far behind the step at which the task has joined.
    """
    text = request.spec.start.get(task)
    trained = any(attempt.global_step is not None for attempt in statuses[task].earlier)
    return None if text is None or trained else parse_trigger(text)


def _is_reached(
    trigger: Trigger | None, request: Request, statuses: TaskStatuses, elapsed_s: float
) -> bool:
    return trigger is None or trigger.has_come(elapsed_s, highest_global_step(request, statuses))


def _waits_for_moment(
    request: Request, task: str, statuses: TaskStatuses, elapsed_s: float
) -> bool:
    """Whether its scheduled start has not come, and its program cannot wait for it itself."""
    trigger = _trigger(request, task, statuses)
    is_reached = _is_reached(trigger, request, statuses, elapsed_s)
    return not is_reached and not joins_at(request, task, statuses)


def _tasks_behind(request: Request, task: str, statuses: TaskStatuses) -> list[str]:
    """The tasks that must restart with this one and whose old program may still be running."""
    if not start_together(request, statuses):
        return []
    attempt = statuses[task].attempt
    return [
        other
        for other, status in statuses.items()
        if status.attempt < attempt and status.state not in {State.PENDING, *ENDED}
    ]


def start_together(request: Request, statuses: TaskStatuses) -> bool:
    """Whether all tasks restart together when one restarts.

    They do not after one of them has succeeded, because that task would be missing.
    """
    done = any(statuses[task].state is State.SUCCEEDED for task in request.others())
    return request.spec.gang and not done


def may_start_again(
    request: Request, mine: TaskStatus, statuses: TaskStatuses, reason: str, cause: Cause | None
) -> bool:
    """Whether a task may restart after its program has failed.

    If tasks start together, a service, the chief or a rank of Horovod cannot restart after another
    task has succeeded, because that task would not take part any more.

    Args:
        request: The run.
        mine: The status of the task, also if the run volume has refused it.
        statuses: The status of each task.
        reason: Why the program has failed.
        cause: The reason as a code.
    """
    needed = request.spec.is_service(mine.task) or mine.task in {request.chief, *request.ranks()}
    too_late = request.spec.gang and needed and not start_together(request, statuses)
    is_left = mine.attempt < request.spec.restarts and not too_late
    return is_left and not _would_recur(request, mine, statuses, reason, cause)


def _would_recur(
    request: Request, mine: TaskStatus, statuses: TaskStatuses, reason: str, cause: Cause | None
) -> bool:
    """Whether a program that failed before its first step would fail again.

    A restart cures what comes from outside the program: a signal, a lost task, the network. It does
    not cure a mistake of the program, nor an error with which an earlier attempt has ended. Once a
    task that restarts together with this one has made a step, the error may be of the training.
    """
    together = [mine, *(statuses.values() if request.spec.gang else ())]
    is_training = any(status.state is State.TRAINING for status in together)
    if is_training or cause is not Cause.EXIT_CODE or _PASSING.search(reason):
        return False
    began = mine.started_unix or 0.0
    attempts = [attempt for status in together for attempt in status.earlier]
    earlier = {attempt.reason for attempt in attempts if attempt.ended_unix < began}
    return _MISTAKE.search(reason) is not None or reason in earlier


def peer_restarted(request: Request, task: str, statuses: TaskStatuses) -> str | None:
    """Why this task must restart with another one, if all tasks restart together; else None.

    The reason names the task that restarted first. This agent may see a task that followed it
    earlier; the reason of that task names the first one.
    """
    if not start_together(request, statuses):
        return None
    attempt = statuses[task].attempt
    further = [status for status in statuses.values() if status.attempt > attempt]
    if not further:
        return None
    first = min(
        further, key=lambda status: status.earlier[-1].ended_unix if status.earlier else 0.0
    )
    reason = first.earlier[-1].reason if first.earlier else ""
    return reason if reason.endswith(_ALL_RESTART) else f"{first.task} restarted{_ALL_RESTART}"
