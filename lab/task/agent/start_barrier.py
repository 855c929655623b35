"""The start barrier: when a task's program may be started, and when it may train.

Training starts when every task is ready, in any order. The tasks do not wait for a task with a
scheduled start: it joins later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from lab.experiments.faults import Trigger, parse_trigger
from lab.volume import Request, TaskStatus
from lab.volume.run_spec import registered
from lab.volume.states import ENDED, State

_MAX_INTERVAL_S: Final = 1.0
_READY: Final = frozenset({State.READY, State.TRAINING})
_NOT_YET: Final = frozenset({State.PENDING, State.STARTING})


def start_together(request: Request, states: Mapping[str, TaskStatus]) -> bool:
    """Whether all tasks restart together when one restarts.

    They do not after one of them has succeeded, because that task would be missing.
    """
    done = any(states[task].state is State.SUCCEEDED for task in request.others())
    return request.spec.gang and not done


def highest_global_step(request: Request, states: Mapping[str, TaskStatus]) -> int | None:
    """The highest global step of a run, or None before the first step."""
    steps = [states[task].global_step for task in request.others()]
    return max((step for step in steps if step is not None), default=None)


class StartBarrier:
    """The start of one task of one run. Its agent checks it ten times a second.

    It uses a monotonic clock, and each check counts at most one second. So an agent that was paused
    for a minute does not take other tasks for late.
    """

    def __init__(
        self,
        request: Request,
        task: str,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        elapsed_s: float = 0.0,
    ) -> None:
        """Begin to watch.

        Args:
            request: The run.
            task: The task of this agent.
            monotonic: A monotonic clock, in seconds.
            elapsed_s: Seconds since the run was submitted: an earlier process of this agent may
                have begun it.
        """
        self._request = request
        self._task = task
        self._schedule = {name: parse_trigger(text) for name, text in request.spec.start.items()}
        self._monotonic = monotonic
        self._checked_at = monotonic()
        self._began = self._checked_at - elapsed_s
        self._late_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run was submitted; a change of the clock does not count."""
        return self._monotonic() - self._began

    def may_start(self, states: Mapping[str, TaskStatus]) -> bool:
        """Whether its program may be started.

        A program that can wait for a step is started before this step, and joins at it.
        """
        trigger = self._trigger(states)
        if trigger is None or (trigger.steps is not None and self._request.spec.waits):
            return self._peers_stopped(states)
        return self._is_reached(trigger, states) and self._peers_stopped(states)

    def may_train(self, states: Mapping[str, TaskStatus]) -> bool:
        """Whether it may train: its start time is reached, and all unscheduled tasks are ready."""
        trigger = self._trigger(states)
        if (
            trigger is not None
            and not self._is_reached(trigger, states)
            and not self.joins_at(states)
        ):
            return False
        return all(
            states[task].state in _READY or states[task].state.ended
            for task in self._request.tasks()
            if task not in self._schedule
        )

    def joins_at(self, states: Mapping[str, TaskStatus]) -> int | None:
        """The global step that its program must wait for itself once it may train, or None."""
        trigger = self._trigger(states)
        experiment = registered(self._request.spec)
        return trigger.steps if trigger and experiment and experiment.joins_at_step else None

    def waits_for(self, states: Mapping[str, TaskStatus]) -> str:
        """What a task that may not train yet waits for, as text."""
        trigger = self._trigger(states)
        if (
            trigger is not None
            and not self._is_reached(trigger, states)
            and not self.joins_at(states)
        ):
            return f"waits: it starts {trigger}" + (" after the others" * (trigger.steps is None))
        missing = self._behind_tasks(states) or [
            task
            for task in self._request.tasks()
            if task not in self._schedule and states[task].state in _NOT_YET
        ]
        return f"waits for {', '.join(missing)}"

    def waits_for_time(self, states: Mapping[str, TaskStatus]) -> bool:
        """Whether its start is scheduled for a time that has not come."""
        trigger = self._trigger(states)
        if trigger is None or trigger.steps is not None:
            return False
        return not self._is_reached(trigger, states)

    def is_late(self, states: Mapping[str, TaskStatus]) -> bool:
        """Whether the start takes too long because of this task, so that this agent reports it.

        Time counts only while every program runs. A missing agent is detected by its heartbeat,
        and a scheduled start is not a delay.
        """
        now = self._monotonic()
        passed = min(now - self._checked_at, _MAX_INTERVAL_S)
        self._checked_at = now
        missing = [task for task in self._by_dependency() if states[task].state is State.STARTING]
        if not missing or self._is_program_pending(states):
            self._late_s = 0.0
            return False
        self._late_s += passed
        patience = self._request.spec.ready_s
        return bool(patience) and self._late_s >= patience and missing[0] == self._task

    def _by_dependency(self) -> list[str]:
        """All tasks: services, then the chief, then the others, which need these to be ready."""
        chief = self._request.chief
        return sorted(
            self._request.tasks(),
            key=lambda task: (not self._request.spec.is_service(task), task != chief),
        )

    def _is_program_pending(self, states: Mapping[str, TaskStatus]) -> bool:
        """Whether a program that the other tasks may need has not started yet."""
        needed = [
            task
            for task in self._request.tasks()
            if task not in self._schedule
            or task == self._request.chief
            or self._request.spec.is_service(task)
        ]
        return any(states[task].state is State.PENDING for task in needed)

    def _trigger(self, states: Mapping[str, TaskStatus]) -> Trigger | None:
        """The scheduled start; None if there is none, or if an earlier attempt has made a step.

        A restarted run may be far behind the step at which the task has joined.
        """
        trained = any(attempt.global_step is not None for attempt in states[self._task].earlier)
        return None if trained else self._schedule.get(self._task)

    def _is_reached(self, trigger: Trigger, states: Mapping[str, TaskStatus]) -> bool:
        return trigger.has_come(self.elapsed_s, highest_global_step(self._request, states))

    def _peers_stopped(self, states: Mapping[str, TaskStatus]) -> bool:
        """Whether no old program is running, if all tasks restart together; otherwise True."""
        return not self._behind_tasks(states)

    def _behind_tasks(self, states: Mapping[str, TaskStatus]) -> list[str]:
        """The tasks that must restart with this one and whose old program may still be running."""
        if not start_together(self._request, states):
            return []
        mine = states[self._task].attempt
        return [
            task
            for task, status in states.items()
            if status.attempt < mine and status.state not in {State.PENDING, *ENDED}
        ]
