"""From a few small trainings to the costs of a step: as many figures as there are unknowns.

Only the shapes named here calibrate; all others are predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from scipy.optimize import bisect

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
"""Costs hang together: each is told by its figure anew as the others come right."""
FEW: Final = 20
"""Simulated steps: nothing varies in them."""

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
    ("crowding", ASYNC_CROWDED, _all, "all tasks' CPU time per step"),
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
    box = Box(cores)
    for _ in range(ROUNDS):
        for name, shape, figure, _words in FITTED:
            costs = replace(costs, **{name: _solved(costs, name, figure, found[shape], box)})
    return costs


def _solved(
    costs: Costs, name: str, figure: Callable[[Figures], float], wanted: Measured, box: Box
) -> float:
    """The value of one cost with which the simulation gives a figure; all others are held.

    By bisection: simulated figures have small steps, where two events change places.
    """

    def off(value: float) -> float:
        tried = simulate(wanted.shape, replace(costs, **{name: value}), box, steps=FEW)
        return figure(tried) / figure(wanted) - 1

    most = MOST_CROWDING if name == "crowding" else MOST
    low, high = off(0.0), off(most)
    if low * high > 0:  # more than the figure is there without it, or not even the most is enough
        return 0.0 if abs(low) < abs(high) else most
    return float(bisect(off, 0.0, most, xtol=PRECISE))


def _call_bytes(one: Measured, costs: Costs) -> float:
    """Headers of a call: what was on the wire beside the tensors, by the number of calls."""
    if one.wire_bytes is None:
        return 0.0
    counted = simulate(one.shape, replace(costs, call_bytes=1.0, call_s=1e-4), Box(1))
    calls = counted.wire_bytes - counted.payload_bytes
    return max(0.0, (one.wire_bytes - counted.payload_bytes) / calls)
