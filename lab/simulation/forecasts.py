"""Predict trainings: one for each number of workers and parameter servers, with its error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lab.errors import InputError
from lab.formatting import pace
from lab.simulation.calibration import machine_of
from lab.simulation.machine import FACTORS, SHIPPED, Error, Machine, error_of, factor, unknown
from lab.simulation.model import Forecast, Shape, Way, simulate
from lab.store.directory import runs_path
from lab.store.names import open_runs
from lab.text import short


class Prediction(NamedTuple):
    """One predicted training.

    Attributes:
        shape: The training.
        forecast: The prediction.
        error: The error of such predictions, or None.
        unknown: What of it is outside the validated range.
    """

    shape: Shape
    forecast: Forecast
    error: Error | None
    unknown: Sequence[str]

    @property
    def images_per_s(self) -> float:
        """Images of all workers per second."""
        batches = 1 if self.shape.way is Way.ASYNC else self.shape.workers
        return self.forecast.steps_per_s * self.shape.batch_size * batches

    def to_json(self) -> dict[str, Any]:
        """Return the prediction with its errors as JSON; an unknown error is null."""
        return {
            "workers": self.shape.workers,
            "ps": self.shape.ps,
            "steps_per_s": self.forecast.steps_per_s,
            "images_per_s": self.images_per_s,
            "error": self.error and self.error.speed,
            "staleness": self.forecast.staleness,
            "staleness_error": self.error and self.error.staleness,
            "not_validated": self.unknown,
        }

    def cells(self) -> dict[str, str]:
        """Return a row of the table: column to text."""
        speed, stale = self.error or (None, None)
        cells = {">workers": str(self.shape.workers), ">ps": str(self.shape.ps)}
        cells[">steps/s"] = _figure(pace(self.forecast.steps_per_s), speed)
        cells[">images/s"] = _figure(pace(self.images_per_s), speed)
        if self.forecast.staleness is not None:
            cells[">staleness"] = _figure(f"{self.forecast.staleness:.1f}", stale)
        return cells


def _figure(value: str, error: float | None) -> str:
    """Return a figure with its error: `463 ±15%`; without a known error only the figure."""
    return value if error is None else f"{value} ±{error:.0%}"


def machine_for(way: Way, run: str | None, runs_dir: str | None) -> Machine:
    """Return the machine of the named run, or the shipped one.

    Raises:
        InputError: The run cannot calibrate, or the argument names several.
        LabError: The run cannot be read.
    """
    if run is None:
        return SHIPPED
    with open_runs([run], (), runs_path(runs_dir)) as runs:
        if len(runs) != 1:
            raise InputError(f"{short(run)} has {len(runs)} runs", "name one run")
        return machine_of(runs[0].directory, way)


def predict(
    way: Way,
    machine: Machine,
    workers: Sequence[int] | None,
    ps: Sequence[int] | None,
    seed: int = 0,
) -> list[Prediction]:
    """Predict a training for each number of workers and parameter servers.

    Args:
        way: How the workers share parameters.
        machine: The machine that calibrates.
        workers: Numbers of workers; None: as many as calibrate, and two and three times as many.
        ps: Numbers of parameter servers; None: as many as the run has, otherwise 1.
        seed: The seed of all random numbers.

    Raises:
        InputError: The numbers do not fit the way, or are too far from the calibrating ones.
    """
    if way is Way.RING and ps:
        raise InputError("multiworker has no parameter servers", "leave out --ps")
    own = [shape for shape in machine.shapes if shape.way is way]
    most = max(shape.workers for shape in own)
    workers, ps = workers or (most, 2 * most, 3 * most), ps or (own[0].ps,)
    shapes = [Shape(way, count, servers) for servers in ps for count in workers]
    for shape in shapes:
        _check(shape, machine)
    return [_predict(shape, machine, seed) for shape in shapes]


def _check(shape: Shape, machine: Machine) -> None:
    """Refuse a training that is too far from the calibrating ones."""
    if factor(shape, machine) > FACTORS[-1]:
        tasks = f"{shape.workers} workers" + (f" with {shape.ps} ps" if shape.ps else "")
        what = f"{tasks} are not within {FACTORS[-1]} times the tasks of {machine.label}"
        raise InputError(what, "calibrate on a run with nearer numbers, with --from RUN")


def _predict(shape: Shape, machine: Machine, seed: int) -> Prediction:
    forecast = simulate(shape, machine.costs, machine.cores, machine.ratios, seed=seed)
    return Prediction(shape, forecast, error_of(shape, machine), unknown(shape, machine))
