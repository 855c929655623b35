"""The stall detector: it reports a run without new global steps, or without a sign of life."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lab.volume import TaskStatus
from lab.volume.states import State

_MAX_INTERVAL_S: Final = 1.0
_NOT_YET: Final = frozenset({State.PENDING, State.STARTING})

_EVALUATOR: Final = "evaluator-"
"""The beginning of the names of tasks that may sleep after the training. Estimator's evaluator
sleeps for ten minutes before its last evaluation by default (`throttle_secs` of EvalSpec)."""

_PERIOD_S: Final = 10.0
"""Maximum seconds between two looks for a sign of life. TensorFlow logs every ten seconds that it
waits, so such a burst counts as part of a long wait."""

LONGER: Final = "if it only sleeps, give a longer `--stall`"
"""The way out if no task waits for another one."""

LOCALHOST: Final = "each node has its own localhost: use the addresses of the config"
"""The way out if tasks wait for each other at `localhost`."""

_LOCAL_SERVER: Final = re.compile(r"serves at grpc://(?:localhost|127\.0\.0\.1):")

_ALIVE: Final = 0.02
"""The share of a CPU core from which a silent program counts as alive. A program of TensorFlow 2.21
that waits for a missing server uses less than 0.01 cores (measured by its process times). A program
that drives a GPU uses more: CUDA spins, or TensorFlow polls, while it waits for the GPU."""


class SignsOfLife:
    """Counts the signs of life of one task's program, for the stall detectors of all agents.

    A sign of life is a printed line that is not TensorFlow's own, or CPU time.
    """

    def __init__(self, patience_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Start with no sign.

        Args:
            patience_s: Maximum seconds without a sign; 0: no limit, and nothing is counted.
            monotonic: A clock in seconds that never goes backwards.
        """
        self._period_s = min(_PERIOD_S, patience_s / 3) or math.inf
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._lines = 0
        self._cpu_s: float | None = None
        self._count = 0

    def count(self, lines: int, cpu_time_s: Callable[[], float | None]) -> int:
        """The number of signs so far; at most one for each period.

        Args:
            lines: The number of lines that the program has printed, without TensorFlow's own.
            cpu_time_s: Returns its CPU time in seconds; None: unknown, which counts as a sign.
        """
        now = self._monotonic()
        if now - self._looked_at >= self._period_s:
            cpu_s = cpu_time_s()
            worked_s = math.inf if cpu_s is None else cpu_s - (self._cpu_s or 0.0)
            share = worked_s / (now - self._looked_at)
            self._count += lines != self._lines or share >= _ALIVE
            self._looked_at, self._lines, self._cpu_s = now, lines, cpu_s
        return self._count


class StallDetector:
    """Watches the global step of a run, or its signs of life, in the statuses of its tasks.

    A run can stall after its first step. It can also stall before it, if the program is known to
    count steps: time then counts from the moment when all tasks are ready. Without a known step,
    any other program stalls if no task has a new sign of life. The detector uses a monotonic clock,
    and each check counts at most one second. So an agent that was paused for a minute does not
    report a stall.
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
            patience_s: Maximum seconds without a new global step or sign of life; 0: no limit.
            tasks: The tasks that make the steps, in the cluster's order.
            counts: Whether their program is known to count its steps.
            monotonic: A clock in seconds that never goes backwards.
        """
        self._patience_s = patience_s
        self._tasks = tuple(tasks)
        self._counts = counts
        self._monotonic = monotonic
        self._checked_at = monotonic()
        self._mark: object = None
        self._stalled_s = 0.0

    def check(self, states: Mapping[str, TaskStatus]) -> str | None:
        """Why the run has stalled, as text; None if it has not."""
        now = self._monotonic()
        passed = min(now - self._checked_at, _MAX_INTERVAL_S)
        self._checked_at = now
        # After a restart from a checkpoint, tasks that have ended may have a higher step.
        active = [states[task] for task in self._tasks if not states[task].state.ended]
        if active and all(each.task.startswith(_EVALUATOR) for each in active):
            self._stalled_s = 0.0
            return None
        steps = [status.global_step for status in active if status.global_step is not None]
        counts = self._counts or bool(steps)
        starts = self._counts and not steps and any(each.state in _NOT_YET for each in active)
        mark = (
            max(steps, default=None)
            if counts
            else [(each.task, each.attempt, each.state, each.signs_of_life) for each in active]
        )
        if mark != self._mark or starts:
            self._mark, self._stalled_s = mark, 0.0
        else:
            self._stalled_s += passed
        if not self._patience_s or self._stalled_s < self._patience_s:
            return None
        details = ", ".join(_describe(status, counts) for status in active) or "no task is left"
        if not counts:
            hint = "" if any(each.message for each in active) else f"; {LONGER}"
            if len(active) > 1 and any(_LOCAL_SERVER.search(each.message) for each in active):
                hint = f"; {LOCALHOST}"
            return f"no sign of life for {self._patience_s:g} s ({details}){hint}"
        last_step = f"the last one was {max(steps):,}" if steps else "no step was made"
        return f"no new global step for {self._patience_s:g} s, {last_step} ({details})"

    def is_reporter(self, task: str, states: Mapping[str, TaskStatus]) -> bool:
        """Whether this task must report the stall: it is the first one that has not ended."""
        return task == next((each for each in self._tasks if not states[each].state.ended), None)


def _describe(status: TaskStatus, counts: bool) -> str:
    if status.message:
        return f"{status.task} {status.message}"
    if not counts:
        return f"{status.task} is silent"
    if status.global_step is None:
        return f"{status.task} made no step"
    return f"{status.task} made its last step at {status.global_step:,}"
