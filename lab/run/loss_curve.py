"""The curve of a run's loss, in bounded memory, and as one line of characters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from lab.records.reader import STEPS, is_number, is_time

INTERVALS: Final = 24
"""The maximum number of intervals of a loss curve, for each task; half of it at least is used."""

BLOCKS: Final = "▁▂▃▄▅▆▇█"
"""The characters of a curve, from the lowest value to the highest."""

ASCII_BLOCKS: Final = "_.-~=+*#"
"""The same for a terminal that shows only ASCII."""


class LossCurve:
    """The tasks' losses in equal intervals of time, in bounded memory.

    When the intervals do not suffice, they become twice as long, and each two are merged.
    """

    def __init__(self) -> None:
        self._began: float | None = None
        self._interval_s = 1.0
        self._sums: dict[str, dict[int, tuple[float, int]]] = {}

    def add(self, task: str, record: Mapping[str, Any]) -> None:
        """Add one record of a task; only step records with a loss count."""
        time, value = record.get("time_unix"), record.get("loss")
        if record.get("kind") not in STEPS or not (is_time(time) and is_number(value)):
            return
        if self._began is None:
            self._began = time
        place = int(max(time - self._began, 0) / self._interval_s)
        while place >= INTERVALS:
            self._merge()
            place //= 2
        total, count = self._sums.setdefault(task, {}).get(place, (0.0, 0))
        self._sums[task][place] = (total + value, count + 1)

    def forget(self, task: str) -> None:
        """Forget the losses of a task."""
        self._sums.pop(task, None)

    def _merge(self) -> None:
        self._interval_s *= 2
        for task, sums in self._sums.items():
            merged: dict[int, tuple[float, int]] = {}
            for place, (total, count) in sums.items():
                before, counted = merged.get(place // 2, (0.0, 0))
                merged[place // 2] = (before + total, counted + count)
            self._sums[task] = merged

    def means(self) -> list[float]:
        """Return the mean over the tasks in each interval, the oldest first.

        An interval without a loss repeats the one before.
        """
        found: dict[int, list[float]] = {}
        for sums in self._sums.values():
            for place, (total, count) in sums.items():
                found.setdefault(place, []).append(total / count)
        means: list[float] = []
        for place in range(min(found, default=0), max(found, default=-1) + 1):
            here = found.get(place)
            means.append(sum(here) / len(here) if here else means[-1])
        return means


def sparkline(values: list[float], blocks: str = BLOCKS) -> str:
    """Return a curve with one character for each value; `!` is a value that is not finite."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    top = len(blocks) - 1

    def block(value: float) -> str:
        if not math.isfinite(value):
            return "!"
        # Halves, because the difference of two large values may be infinite.
        height = 0.0 if high == low else (value / 2 - low / 2) / (high / 2 - low / 2)
        return blocks[round(height * top)]

    return "".join(map(block, values))
