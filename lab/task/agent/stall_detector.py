"""A training that stands still: who notices, and what is said of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lab.task.protocol import TaskStatus
from lab.task.protocol.states import State

_MOST_AT_ONCE_S: Final = 1.0
_NOT_YET: Final = frozenset({State.PENDING, State.STARTING})


class StallDetector:
    """Watches the global step of a run through the states of its tasks.

    Only a step that has moved once can stand still: a program that counts none is let alone, unless
    it is known to count, or one of its tasks has counted. Such a one may not be ready for longer
    than that without a step. Times of day are not compared, and each look adds at most one second,
    so that an agent that was itself stopped for a minute does not take the training for stalled.
    """

    def __init__(
        self,
        patience_s: float,
        tasks: Iterable[str],
        *,
        counts: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to watch.

        Args:
            patience_s: Seconds without a new global step that are too many; 0: there is no limit.
            tasks: Those that make the steps, in the cluster's order.
            counts: Whether their program is known to count its steps.
            monotonic: Seconds that never run back.
        """
        self._patience_s = patience_s
        self._tasks = tuple(tasks)
        self._counts = counts
        self._monotonic = monotonic
        self._looked = monotonic()
        self._highest: int | None = None
        self._still_s = 0.0

    def check(self, states: Mapping[str, TaskStatus]) -> str | None:
        """Why the run has stalled, in words; None while it has not."""
        now = self._monotonic()
        passed = min(now - self._looked, _MOST_AT_ONCE_S)
        self._looked = now
        # Where a training was set back, those that have ended had been farther.
        steps = [states[task].global_step for task in self._tasks if not states[task].state.ended]
        highest = max((step for step in steps if step is not None), default=None)
        if highest != self._highest or self._begins(states, highest):
            self._highest, self._still_s = highest, 0.0
        else:
            self._still_s += passed
        if not self._patience_s or self._still_s < self._patience_s:
            return None
        waiting = [states[task] for task in self._tasks if not states[task].state.ended]
        who = ", ".join(_where(status) for status in waiting) or "nobody is left"
        stands = "no step was made" if highest is None else f"it stands at {highest:,}"
        return f"no new global step for {self._patience_s:g} s, {stands} ({who})"

    def _begins(self, states: Mapping[str, TaskStatus], highest: int | None) -> bool:
        """Whether no step can be missed yet."""
        if highest is not None:
            return False
        counts = self._counts or any(states[task].global_step is not None for task in self._tasks)
        return not counts or any(states[task].state in _NOT_YET for task in self._tasks)

    def is_reporter(self, task: str, states: Mapping[str, TaskStatus]) -> bool:
        """Whether it is this task's part to say so: the first that has not ended, for all."""
        return task == next((each for each in self._tasks if not states[each].state.ended), None)


def _where(status: TaskStatus) -> str:
    if status.message:
        return f"{status.task} {status.message}"
    if status.global_step is None:
        return f"{status.task} made no step"
    return f"{status.task} made its last step at {status.global_step:,}"
