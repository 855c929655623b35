"""A training that stands still: who notices, and what is said of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lab.task.protocol import TaskStatus

_MOST_AT_ONCE_S: Final = 1.0


class Stall:
    """Watches the global step of a run through the states of its tasks.

    Only a step that has moved once can stand still: a program that counts none is let alone. Times
    of day are not compared, and each look adds at most one second, so that an agent that was itself
    stopped for a minute does not take the training for stalled.
    """

    def __init__(
        self,
        patience_s: float,
        tasks: Iterable[str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to watch.

        Args:
            patience_s: Seconds without a new global step that are too many; 0: there is no limit.
            tasks: Those that make the steps, in the cluster's order.
            monotonic: Seconds that never run back.
        """
        self._patience_s = patience_s
        self._tasks = tuple(tasks)
        self._monotonic = monotonic
        self._looked = monotonic()
        self._highest: int | None = None
        self._still_s = 0.0

    def look(self, states: Mapping[str, TaskStatus]) -> str | None:
        """Why the run has stalled, in words; None while it has not."""
        now = self._monotonic()
        passed = min(now - self._looked, _MOST_AT_ONCE_S)
        self._looked = now
        steps = [states[task].global_step for task in self._tasks]
        highest = max((step for step in steps if step is not None), default=None)
        if highest != self._highest:
            self._highest, self._still_s = highest, 0.0
        else:
            self._still_s += passed
        if highest is None or not self._patience_s or self._still_s < self._patience_s:
            return None
        waiting = [states[task] for task in self._tasks if not states[task].state.ended]
        who = ", ".join(_where(status) for status in waiting) or "nobody is left"
        return f"no new global step for {self._patience_s:g} s, it stands at {highest:,} ({who})"

    def speaks(self, task: str, states: Mapping[str, TaskStatus]) -> bool:
        """Whether it is this task's part to say so: the first that has not ended, for all."""
        return task == next((each for each in self._tasks if not states[each].state.ended), None)


def _where(status: TaskStatus) -> str:
    if status.message:
        return f"{status.task} {status.message}"
    if status.global_step is None:
        return f"{status.task} made no step"
    return f"{status.task} made its last step at {status.global_step:,}"
