"""Calibrate the costs of a step from a few small trainings: one figure for each unknown.

Only the figures named here calibrate the simulation. It predicts all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from scipy.optimize import brentq

from benchmarks.shapes import Measured
from lab.simulation import Box, Costs, Forecast, Shape, Way, simulate

ASYNC: Final = Shape(Way.ASYNC, 1, 1)
ASYNC_TINY: Final = Shape(Way.ASYNC, 1, 1, batch_size=1)
ASYNC_CROWDED: Final = Shape(Way.ASYNC, 1, 4)
SYNC: Final = Shape(Way.SYNC, 1, 1)
ALONE: Final = Shape(Way.RING, 1, 0)
RING: Final = Shape(Way.RING, 2, 0)
SHAPES: Final = (ASYNC, ASYNC_TINY, ASYNC_CROWDED, SYNC, ALONE, RING)

MOST: Final = 5e-3
MOST_CROWDING: Final = 10.0
PRECISE: Final = 1e-7
ROUNDS: Final = 5
"""The costs depend on each other, so each is solved again after the others have changed."""
FEW: Final = 60
"""Simulated steps; they differ only by the times at which other work takes a core."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A cost, and the figure of a shape that determines it.

    Attributes:
        cost: A field of `Costs`.
        shape: One of `SHAPES`.
        figure: An attribute of `Measured` and of `Forecast`.
        label: What the figure is.
    """

    cost: str
    shape: Shape
    figure: str
    label: str

    def off(self, found: Measured, forecast: Forecast) -> float:
        """Return the relative error of the simulated figure."""
        return float(getattr(forecast, self.figure) / getattr(found, self.figure) - 1)


FITTED: Final = (
    Fit("call_s", ASYNC, "ps_cpu_s", "the parameter server's CPU time per step"),
    Fit("session_s", ASYNC, "worker_cpu_s", "the worker's CPU time per step"),
    Fit("wait_s", ASYNC, "steps_per_s", "steps per second"),
    Fit("crowding", ASYNC_CROWDED, "cpu_s", "all tasks' CPU time per step"),
    Fit("update_s", SYNC, "worker_cpu_s", "the worker's CPU time per step"),
    Fit("eager_s", ALONE, "worker_cpu_s", "the worker's CPU time per step"),
    Fit("hop_s", RING, "worker_cpu_s", "the workers' CPU time per step"),
    Fit("hop_wait_s", RING, "steps_per_s", "steps per second"),
)
"""Costs for which the simulation is solved."""
SUBTRACTED: Final = (
    Fit(
        "feed_s", ASYNC_TINY, "worker_cpu_s", "the worker's CPU time per step, with 100 and with 1"
    ),
    Fit("call_bytes", ASYNC, "wire_bytes", "bytes on the wire per step"),
)
"""Costs that follow from a subtraction."""


def calibrates(shape: Shape, figure: str) -> bool:
    """Whether a figure of a shape calibrates a cost, so that it does not test the simulation.

    If the CPU time of some tasks calibrates a cost, the CPU time of all tasks is no test either.
    """
    used = {fit.figure for fit in (*FITTED, *SUBTRACTED) if fit.shape == shape}
    alike = {"worker_cpu_s", "ps_cpu_s", "cpu_s"}
    return bool(used & (alike if figure in alike else {figure}))


def calibrate(found: Mapping[Shape, Measured], costs: Costs, cores: int) -> Costs:
    """Return the costs for which the simulation gives the figures of the calibrating shapes.

    Args:
        found: The measurements of `SHAPES`.
        costs: Costs that were measured separately: `image_s`, `byte_s`, `apply_byte_s`.
        cores: The number of this host's cores.

    Returns:
        The costs. A cost whose solution is negative is 0. Its figure is then not met, and
        `Fit.off` returns the error.
    """
    # An image costs a step more than its gradients: it is also drawn and fed.
    an_image_s = (found[ASYNC].worker_cpu_s - found[ASYNC_TINY].worker_cpu_s) / (
        ASYNC.batch_size - ASYNC_TINY.batch_size
    )
    feed_s = max(0.0, an_image_s - costs.image_s)
    costs = replace(costs, feed_s=feed_s, call_bytes=_call_bytes(found[ASYNC], costs))
    for _ in range(ROUNDS):
        for fit in FITTED:
            costs = replace(costs, **{fit.cost: _solved(costs, fit, found[fit.shape], cores)})
    return costs


def _solved(costs: Costs, fit: Fit, wanted: Measured, cores: int) -> float:
    """Return the value of one cost for which the simulation gives a figure; the others are fixed.

    The search needs a bracket: simulated figures jump where two events change their order.
    """

    def off(value: float) -> float:
        with_it = replace(costs, **{fit.cost: value})
        return fit.off(wanted, simulate(wanted.shape, with_it, wanted.box(cores), steps=FEW))

    most = MOST_CROWDING if fit.cost == "crowding" else MOST
    low, high = off(0.0), off(most)
    if low * high > 0:  # no value in the bracket gives the figure
        return 0.0 if abs(low) < abs(high) else most
    return float(brentq(off, 0.0, most, xtol=PRECISE))


def _call_bytes(one: Measured, costs: Costs) -> float:
    """Return the bytes of a call's headers: all bytes without the tensors, per call."""
    if one.wire_bytes is None:
        return 0.0
    counted = simulate(one.shape, replace(costs, call_bytes=1.0, call_s=1e-4), Box(1))
    calls = counted.wire_bytes - counted.payload_bytes
    return max(0.0, (one.wire_bytes - counted.payload_bytes) / calls)
