"""When a task's program may be started, and when it may train.

Training starts when every task is ready, whatever the order in which they came. A task with a
schedule of its own is not waited for: it joins when its time has come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from lab.task.protocol import Request, TaskStatus
from lab.task.protocol.experiments import registered
from lab.task.protocol.states import ENDED, State
from lab.task.protocol.trigger import Trigger, parse_trigger

_MOST_AT_ONCE_S: Final = 1.0
_UNDER_WAY: Final = frozenset({State.READY, State.TRAINING})
_NOT_YET: Final = frozenset({State.PENDING, State.STARTING})


def start_together(request: Request, states: Mapping[str, TaskStatus]) -> bool:
    """Whether all tasks start again together when one does.

    Once one of them has succeeded, nobody would be there for the others to start with.
    """
    done = any(states[task].state is State.SUCCEEDED for task in request.others())
    return request.spec.gang and not done


def highest_global_step(request: Request, states: Mapping[str, TaskStatus]) -> int | None:
    """How far a run is, or None where no step was made."""
    steps = [states[task].global_step for task in request.others()]
    return max((step for step in steps if step is not None), default=None)


class StartBarrier:
    """The start of one task of one run, as its agent looks at it ten times a second.

    Times of day are not compared, and each look adds at most one second, so that an agent that was
    itself stopped for a minute takes nobody for late.
    """

    def __init__(
        self, request: Request, task: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._request = request
        self._task = task
        self._schedule = {name: parse_trigger(text) for name, text in request.spec.start.items()}
        self._monotonic = monotonic
        self._began = self._looked = monotonic()
        self._late_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since this agent has taken the run up."""
        return self._monotonic() - self._began

    def may_start(self, states: Mapping[str, TaskStatus]) -> bool:
        """Whether its program may be started.

        A program that knows to wait is started before its step has come, and then joins at it.
        """
        when = self._when(states)
        if when is None or (when.steps is not None and self._request.spec.waits):
            return self._together(states)
        return self._has_come(when, states) and self._together(states)

    def may_train(self, states: Mapping[str, TaskStatus]) -> bool:
        """Whether it may train: all are ready that it is not scheduled to come after."""
        when = self._when(states)
        if when is not None and not self._has_come(when, states) and not self.joins_at(states):
            return False
        return all(
            states[task].state in _UNDER_WAY or states[task].state.ended
            for task in self._request.tasks()
            if task not in self._schedule
        )

    def joins_at(self, states: Mapping[str, TaskStatus]) -> int | None:
        """The global step that its program has to wait for by itself once it may train, if any."""
        when = self._when(states)
        experiment = registered(self._request.spec)
        return when.steps if when and experiment and experiment.joins_at_step else None

    def waits_for(self, states: Mapping[str, TaskStatus]) -> str:
        """What a task waits for that may not train yet, in words."""
        when = self._when(states)
        if when is not None and not self._has_come(when, states) and not self.joins_at(states):
            return f"waits: it is to start {when}" + (" after the others" * (when.steps is None))
        missing = self._behind(states) or [
            task
            for task in self._request.tasks()
            if task not in self._schedule and states[task].state in _NOT_YET
        ]
        return f"waits for {', '.join(missing)}"

    def is_late(self, states: Mapping[str, TaskStatus]) -> bool:
        """Whether it is this task that all have waited for too long, and so has to say so.

        Time counts only while every program runs: an agent that does not come is missed by its
        heartbeat, and a schedule is no delay.
        """
        now = self._monotonic()
        passed = min(now - self._looked, _MOST_AT_ONCE_S)
        self._looked = now
        missing = [task for task in self._blamed_first() if states[task].state is State.STARTING]
        if not missing or self._is_program_pending(states):
            self._late_s = 0.0
            return False
        self._late_s += passed
        patience = self._request.spec.ready_s
        return bool(patience) and self._late_s >= patience and missing[0] == self._task

    def _blamed_first(self) -> list[str]:
        """Services first, then the chief: the others cannot be ready before these are."""
        chief = self._request.chief
        return sorted(
            self._request.tasks(),
            key=lambda task: (not self._request.spec.is_service(task), task != chief),
        )

    def _is_program_pending(self, states: Mapping[str, TaskStatus]) -> bool:
        """Whether a program is not there yet without which the others may not be ready."""
        needed = [
            task
            for task in self._request.tasks()
            if task not in self._schedule
            or task == self._request.chief
            or self._request.spec.is_service(task)
        ]
        return any(states[task].state is State.PENDING for task in needed)

    def _when(self, states: Mapping[str, TaskStatus]) -> Trigger | None:
        """When it is to start; once it has made a step, a further attempt begins at once.

        A restarted training may be far behind the step at which it has joined.
        """
        trained = any(attempt.global_step is not None for attempt in states[self._task].earlier)
        return None if trained else self._schedule.get(self._task)

    def _has_come(self, when: Trigger, states: Mapping[str, TaskStatus]) -> bool:
        return when.has_come(self.elapsed_s, highest_global_step(self._request, states))

    def _together(self, states: Mapping[str, TaskStatus]) -> bool:
        """Where all start again together, nobody does while another's old program may run."""
        return not self._behind(states)

    def _behind(self, states: Mapping[str, TaskStatus]) -> list[str]:
        """Tasks of which an old program may still run that is to start again with this one."""
        if not start_together(self._request, states):
            return []
        mine = states[self._task].attempt
        return [
            task
            for task, status in states.items()
            if status.attempt < mine and status.state not in {State.PENDING, *ENDED}
        ]
