"""The signs of life of a program that makes no known step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

_PERIOD_S: Final = 10.0
"""Maximum seconds between two looks for a sign of life. TensorFlow logs every ten seconds that it
waits, so such a burst counts as part of a long wait."""

_ALIVE: Final = 0.02
"""The share of a CPU core from which a silent program counts as alive. A program of TensorFlow 2.21
that waits for a missing server uses less than 0.01 cores (measured by its process times). A program
that drives a GPU uses more: CUDA spins, or TensorFlow polls, while it waits for the GPU."""


class SignsOfLife:
    """Counts the signs of life of one task's program, for the agents of all tasks.

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
