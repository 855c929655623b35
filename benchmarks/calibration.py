"""From a few small trainings to the costs of a step: as many figures as there are unknowns.

Only the shapes named here calibrate; all others are predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.shapes import Measured
from lab.simulation import Box, Costs, Forecast, Shape, Way, simulate

ASYNC: Final = Shape(Way.ASYNC, 1, 1)
ASYNC_TINY: Final = Shape(Way.ASYNC, 1, 1, batch_size=1)
ASYNC_CROWDED: Final = Shape(Way.ASYNC, 1, 4)
SYNC: Final = Shape(Way.SYNC, 1, 1)
ALONE: Final = Shape(Way.RING, 1, 0)
RING: Final = Shape(Way.RING, 2, 0)
SHAPES: Final = (ASYNC, ASYNC_TINY, ASYNC_CROWDED, SYNC, ALONE, RING)

Figures = Measured | Forecast


def _rate(figures: Figures) -> float:
    return figures.steps_per_s


def _worker(figures: Figures) -> float:
    return figures.worker_cpu_s


def _servers(figures: Figures) -> float:
    return figures.ps_cpu_s


def _all(figures: Figures) -> float:
    return figures.worker_cpu_s + figures.ps_cpu_s


FITTED: Final[Sequence[tuple[str, Shape, Callable[[Figures], float], str]]] = (
    ("call_s", ASYNC, _servers, "the parameter server's CPU time per step"),
    ("session_s", ASYNC, _worker, "the worker's CPU time per step"),
    ("wait_s", ASYNC, _rate, "steps per second"),
    ("switch_s", ASYNC_CROWDED, _all, "all tasks' CPU time per step"),
    ("update_s", SYNC, _worker, "the worker's CPU time per step"),
    ("eager_s", ALONE, _worker, "the worker's CPU time per step"),
    ("hop_s", RING, _worker, "the workers' CPU time per step"),
    ("hop_wait_s", RING, _rate, "steps per second"),
)
"""Each cost, and the figure that tells it: (cost, shape, figure, in words)."""


def calibrate(found: Mapping[Shape, Measured], costs: Costs, cores: int) -> Costs:
    """The costs with which the simulation gives the figures of the calibrating shapes.

    Args:
        found: What was measured of `SHAPES`.
        costs: Those that were measured by themselves: `byte_s`, `apply_byte_s`.
        cores: Of this machine.

    Returns:
        The costs; a cost that would have to be negative is 0, and then its figure is not met.
    """
    image_s = (found[ASYNC].worker_cpu_s - found[ASYNC_TINY].worker_cpu_s) / (
        ASYNC.batch_size - ASYNC_TINY.batch_size
    )
    costs = replace(costs, image_s=max(0.0, image_s), call_bytes=_call_bytes(found[ASYNC], costs))
    names = [name for name, *_ in FITTED]
    shapes = dict.fromkeys(shape for _, shape, *_ in FITTED)
    scale = 1e-4  # seconds: what all of these costs are about

    def with_costs(values: NDArray[np.float64]) -> Costs:
        return replace(
            costs, **{name: float(x) * scale for name, x in zip(names, values, strict=True)}
        )

    def errors(values: NDArray[np.float64]) -> list[float]:
        box, tried = Box(cores), with_costs(values)
        forecasts = {shape: simulate(shape, tried, box) for shape in shapes}
        return [
            figure(forecasts[shape]) / figure(found[shape]) - 1 for _, shape, figure, _ in FITTED
        ]

    # The simulated times have small steps, where two events change places: no tiny differences.
    fit = least_squares(
        errors, np.ones(len(names)), bounds=(0, np.inf), diff_step=1e-2, xtol=1e-4, ftol=1e-5
    )
    return with_costs(fit.x)


def _call_bytes(one: Measured, costs: Costs) -> float:
    """Headers of a call: what was on the wire beside the tensors, by the number of calls."""
    if one.wire_bytes is None:
        return 0.0
    counted = simulate(one.shape, replace(costs, call_bytes=1.0, call_s=1e-4), Box(1))
    calls = counted.wire_bytes - counted.payload_bytes
    return max(0.0, (one.wire_bytes - counted.payload_bytes) / calls)
