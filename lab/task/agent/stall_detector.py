"""The stall detector: it reports a run without new global steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lab.task.protocol import TaskStatus
from lab.task.protocol.states import State

_MAX_INTERVAL_S: Final = 1.0
_NOT_YET: Final = frozenset({State.PENDING, State.STARTING})


class StallDetector:
    """Watches the global step of a run in the statuses of its tasks.

    A run can stall after its first step. It can also stall before it, if the program is known to
    count steps: time then counts from the moment when all tasks are ready. A program that counts no
    steps never stalls. The detector uses a monotonic clock, and each check counts at most one
    second. So an agent that was paused for a minute does not report a stall.
    """

    def __init__(
        self,
        patience_s: float,
        tasks: Iterable[str],
        *,
        counts: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a detector.

        Args:
            patience_s: Maximum seconds without a new global step; 0: no limit.
            tasks: The tasks that make the steps, in the cluster's order.
            counts: Whether their program is known to count its steps.
            monotonic: A clock in seconds that never goes backwards.
        """
        self._patience_s = patience_s
        self._tasks = tuple(tasks)
        self._counts = counts
        self._monotonic = monotonic
        self._checked_at = monotonic()
        self._highest: int | None = None
        self._stalled_s = 0.0

    def check(self, states: Mapping[str, TaskStatus]) -> str | None:
        """Why the run has stalled, as text; None if it has not."""
        now = self._monotonic()
        passed = min(now - self._checked_at, _MAX_INTERVAL_S)
        self._checked_at = now
        # After a restart from a checkpoint, tasks that have ended may have a higher step.
        steps = [states[task].global_step for task in self._tasks if not states[task].state.ended]
        highest = max((step for step in steps if step is not None), default=None)
        if highest != self._highest or self._cannot_stall_yet(states, highest):
            self._highest, self._stalled_s = highest, 0.0
        else:
            self._stalled_s += passed
        if not self._patience_s or self._stalled_s < self._patience_s:
            return None
        waiting = [states[task] for task in self._tasks if not states[task].state.ended]
        details = ", ".join(_describe(status) for status in waiting) or "no task is left"
        last_step = "no step was made" if highest is None else f"the last one was {highest:,}"
        return f"no new global step for {self._patience_s:g} s, {last_step} ({details})"

    def _cannot_stall_yet(self, states: Mapping[str, TaskStatus], highest: int | None) -> bool:
        """Whether the time for the first step does not count yet."""
        if highest is not None:
            return False
        counts = self._counts or any(states[task].global_step is not None for task in self._tasks)
        return not counts or any(states[task].state in _NOT_YET for task in self._tasks)

    def is_reporter(self, task: str, states: Mapping[str, TaskStatus]) -> bool:
        """Whether this task must report the stall: it is the first one that has not ended."""
        return task == next((each for each in self._tasks if not states[each].state.ended), None)


def _describe(status: TaskStatus) -> str:
    if status.message:
        return f"{status.task} {status.message}"
    if status.global_step is None:
        return f"{status.task} made no step"
    return f"{status.task} made its last step at {status.global_step:,}"
