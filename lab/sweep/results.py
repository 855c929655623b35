"""The results of a sweep's runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lab.store.summary import Summary
from lab.sweep.grid import Point
from lab.volume.states import State


@dataclass(frozen=True, slots=True)
class RunResult:
    """One ended run of a sweep.

    Attributes:
        point: Its point of the grid.
        summary: Its summary.
    """

    point: Point
    summary: Summary

    @property
    def succeeded(self) -> bool:
        """Whether the run succeeded; only then its metrics count."""
        return self.summary.state == State.SUCCEEDED

    @property
    def diverged(self) -> bool:
        """Whether its loss or another metric is NaN or infinite."""
        has_lost = any(task.diverged_at is not None for task in self.summary.tasks)
        return has_lost or not all(map(math.isfinite, self._measured().values()))

    def metrics(self) -> dict[str, float]:
        """Return its finite metrics: its results, the test accuracy, and its speed.

        NaN and infinities are left out, because they have no mean.
        """
        found = self._measured()
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def _measured(self) -> dict[str, float]:
        found = {each.name: each.value for each in self.summary.results if each.value is not None}
        if self.summary.accuracy is not None:
            found["accuracy"] = self.summary.accuracy
        if self.summary.steps_per_s is not None:
            found["steps/s"] = self.summary.steps_per_s
        return found


def metric_names(results: Sequence[RunResult]) -> list[str]:
    """Return the names of the metrics of all runs, in order of appearance."""
    return list(dict.fromkeys(name for each in results for name in each.metrics()))
