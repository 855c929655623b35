"""Predictions of trainings that were measured, and their errors by class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any, Final

from lab.simulation import Forecast, Host, Machine, Shape, simulate
from lab.simulation.calibration import Speed
from lab.simulation.validation import Kind, kind_of

LEVEL: Final = 0.9
"""The printed error was not exceeded by this share of the class's predictions."""
LEAST: Final = 3
"""A class with fewer predictions is not validated."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A prediction, and the training that was measured.

    Attributes:
        machine: The machine that predicted.
        host: The host of the training.
        forecast: The prediction.
        measured: The measured speed.
        kind: The kind of the prediction, or None.
    """

    machine: Machine
    host: Host
    forecast: Forecast
    measured: Speed
    kind: Kind | None

    @classmethod
    def of(cls, machine: Machine, shape: Shape, host: Host, speed: Speed, shipped: bool) -> Trial:
        """Predict a training that was measured."""
        forecast = simulate(shape, machine.costs, host, machine.ratios, steps=500)
        return cls(machine, host, forecast, speed, kind_of(machine, shape, host, shipped=shipped))

    @property
    def off(self) -> float:
        """The measured speed, relative to the predicted one, minus 1."""
        return self.measured.steps_per_s / self.forecast.steps_per_s - 1

    @property
    def stale_off(self) -> float | None:
        """The same for the staleness; None if there is none."""
        found, wanted = self.forecast.staleness, self.measured.staleness
        return wanted / found - 1 if found and wanted is not None else None


def classes(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """Return the errors of each class, as the file keeps them."""
    groups: dict[Kind, list[Trial]] = {}
    for each in trials:
        if each.kind:
            groups.setdefault(each.kind, []).append(each)
    order = sorted(groups, key=lambda kind: (kind.way, kind.shipped, kind.change, kind.times))
    return [_row(kind, groups[kind]) for kind in order if len(groups[kind]) >= LEAST]


def _row(kind: Kind, trials: Sequence[Trial]) -> dict[str, Any]:
    errors = [abs(each.off) for each in trials]
    stale = [abs(each.stale_off) for each in trials if each.stale_off is not None]
    shapes = [each.forecast.shape for each in trials]
    return {
        "way": kind.way.value,
        "shipped": kind.shipped,
        "change": kind.change,
        "times": kind.times,
        "predictions": len(trials),
        "median": round(median(errors), 4),
        "error": round(quantile(errors), 4),
        "staleness": round(quantile(stale), 4) if stale else None,
        "workers": max(shape.workers for shape in shapes),
        "ps": max(shape.ps for shape in shapes),
        "share": min(min(shape.shares, default=1.0) for shape in shapes),
        "cores": sorted({each.host.cores for each in trials}),
        "bandwidth": sorted({each.host.bandwidth for each in trials if kind.change == "links"}),
    }


def quantile(errors: Sequence[float]) -> float:
    """Return the smallest error that `LEVEL` of the errors do not exceed."""
    return sorted(errors)[ceil(LEVEL * len(errors)) - 1]
