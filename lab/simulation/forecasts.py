"""Predict trainings: one for each number of workers and parameter servers, with its error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lab.errors import InputError
from lab.formatting import pace
from lab.simulation.machine import FACTORS, Machine, error_of, factor, unknown
from lab.simulation.model import Shape, Way, simulate


class Prediction(NamedTuple):
    """One predicted training, as `lab simulate --json` prints it.

    Attributes:
        workers: The number of workers.
        ps: The number of parameter servers.
        steps_per_s: Global steps per second.
        images_per_s: Images of all workers per second.
        error: The relative error of the speeds of such predictions, or None.
        not_validated: What of it is outside the validated range.
    """

    workers: int
    ps: int
    steps_per_s: float
    images_per_s: float
    error: float | None
    not_validated: Sequence[str]

    def cells(self) -> dict[str, str]:
        """Return a row of the table: column to text."""
        error = "" if self.error is None else f" ±{self.error:.0%}"
        return {
            ">workers": str(self.workers),
            ">ps": str(self.ps),
            ">steps/s": pace(self.steps_per_s) + error,
            ">images/s": pace(self.images_per_s) + error,
        }


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
        if factor(shape, machine) > FACTORS[-1]:
            tasks = f"{shape.workers} workers" + (f" with {shape.ps} ps" if shape.ps else "")
            what = f"{tasks} are not within {FACTORS[-1]} times the tasks of {machine.label}"
            raise InputError(what, "calibrate on a run with nearer numbers, with --from RUN")
    return [_predict(shape, machine, seed) for shape in shapes]


def _predict(shape: Shape, machine: Machine, seed: int) -> Prediction:
    forecast = simulate(shape, machine.costs, machine.cores, machine.ratios, seed=seed)
    speed, batches = forecast.steps_per_s, 1 if shape.way is Way.ASYNC else shape.workers
    return Prediction(
        shape.workers, shape.ps, speed, speed * shape.batch_size * batches,
        error_of(shape, machine), unknown(shape, machine),
    )  # fmt: skip
