"""The simulated training compared with results of queues that are known exactly."""

from __future__ import annotations

import random
import statistics
from math import ceil

import pytest

from lab.study.simulation.discrete_events import Costs, Shape, Way, simulate

MILLI = 1e-3
APART = 128  # cores: each task has one of its own
SPREAD = tuple(1 + 0.4 * (number - 49.5) / 50 for number in range(100))


def shape(way: Way, workers: int, ps: int = 1) -> Shape:
    return Shape(way, workers, 0 if way is Way.RING else ps)


def rate(
    wanted: Shape, costs: Costs, cores: int = APART, ratios: tuple[float, ...] = (1.0,)
) -> float:
    return simulate(wanted, costs, cores, ratios).steps_per_s


def test_one_worker_takes_the_sum_of_its_costs() -> None:
    costs = Costs(worker_s=2 * MILLI, call_s=MILLI, serve_s=3 * MILLI, image_s=0.01 * MILLI)
    found = simulate(shape(Way.ASYNC, 1), costs, APART)
    assert 1 / found.steps_per_s == pytest.approx(7 * MILLI)
    assert (found.worker_cpu_s, found.ps_cpu_s) == pytest.approx((4 * MILLI, 3 * MILLI))


MS = MILLI


@pytest.mark.parametrize(
    ("wanted", "costs", "cores", "step_s"),
    [
        # Servers work at the same time.
        (shape(Way.ASYNC, 1, 2), Costs(call_s=MS, serve_s=4 * MS), APART, 5 * MS),
        # Work after the answer delays no step unless the cores are full.
        (shape(Way.ASYNC, 1), Costs(worker_s=MS, serve_s=2 * MS, after=0.5), 4, 2 * MS),
        (shape(Way.ASYNC, 1), Costs(worker_s=MS, serve_s=2 * MS, after=0.5), 1, 3 * MS),
        # Tasks of one host share its cores.
        (shape(Way.ASYNC, 8), Costs(worker_s=MS, serve_s=MS, update=0.0), 2, MS),
        (shape(Way.SYNC, 8), Costs(worker_s=MS, serve_s=MS, update=0.0), 2, 8 * MS),
        # Four cores and three tasks: the server gets two cores, as in a plan.
        (shape(Way.ASYNC, 2), Costs(serve_s=2 * MS), 4, MS),
        # Two cores and two tasks: each has one of its own.
        (shape(Way.RING, 2), Costs(ring_s=MS), 2, MS),
    ],
)  # fmt: skip
def test_a_step_takes_what_its_queues_take(
    wanted: Shape, costs: Costs, cores: int, step_s: float
) -> None:
    assert 1 / rate(wanted, costs, cores) == pytest.approx(step_s, rel=0.02)


@pytest.mark.parametrize("workers", [1, 3, 16])
def test_a_synchronous_step_takes_the_maximum_of_its_workers(workers: int) -> None:
    found = simulate(
        shape(Way.SYNC, workers), Costs(worker_s=MILLI), APART, SPREAD, steps=workers * 1500
    )
    source = random.Random(2)  # noqa: S311
    drawn = [max(source.choices(SPREAD, k=workers)) for _ in range(5000)]
    assert 1 / found.steps_per_s == pytest.approx(statistics.mean(drawn) * MILLI, rel=0.015)


@pytest.mark.parametrize("way", [Way.SYNC, Way.RING])
def test_spread_slows_only_workers_that_wait_for_each_other(way: Way) -> None:
    costs = Costs(worker_s=MILLI, ring_s=MILLI)
    lost = rate(shape(way, 8), costs, ratios=SPREAD) / rate(shape(way, 8), costs)
    assert lost < 0.8
    free = shape(Way.ASYNC, 8)
    assert rate(free, costs, ratios=SPREAD) / rate(free, costs) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("workers", [2, 5, 100])
def test_a_ring_takes_what_its_formula_says(workers: int) -> None:
    costs = Costs(ring_s=MILLI, reduce_s=2 * MILLI, hop_s=0.1 * MILLI, hop_wait_s=0.3 * MILLI)
    phases = 2 * (workers - 1)
    expected = 3 * MILLI + phases * 0.4 * MILLI
    assert 1 / rate(shape(Way.RING, workers), costs) == pytest.approx(expected)
    # All workers on two cores.
    reduce_s = workers / 2 * (2 * MILLI + phases * 0.1 * MILLI) + phases * 0.3 * MILLI
    crowded_s = 1 / rate(shape(Way.RING, workers), costs, 2)
    assert crowded_s == pytest.approx(ceil(workers / 2) * MILLI + reduce_s)


def test_equal_seeds_give_equal_results_and_more_steps_narrower_ones() -> None:
    costs = Costs(worker_s=MILLI, serve_s=MILLI)

    def by(seed: int, steps: int) -> float:
        found = simulate(shape(Way.SYNC, 3), costs, 2, SPREAD, seed=seed, steps=steps)
        return found.steps_per_s

    assert by(1, 300) == by(1, 300)
    widths = [statistics.stdev(by(seed, steps) for seed in range(6)) for steps in (90, 2000)]
    assert widths[0] > 2 * widths[1] > 0
