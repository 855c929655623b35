"""The simulated training compared with results of queues that are known exactly."""

from __future__ import annotations

import random
import statistics
from math import ceil

import pytest

from lab.simulation.engine import simulate
from lab.simulation.model import Costs, Host, Shape, Way

MILLI = 1e-3
SIZE = 31_400  # bytes of softmax regression's parameters: 784 * 10 + 10 of 4 bytes
APART = Host(cores=64, separate=True)
SPREAD = tuple(1 + 0.4 * (number - 49.5) / 50 for number in range(100))


def shape(way: Way, workers: int, ps: int = 1, **more: object) -> Shape:
    return Shape(way, workers, 0 if way is Way.RING else ps, **more)


def rate(wanted: Shape, costs: Costs, host: Host = APART, ratios: tuple[float, ...] = ()) -> float:
    return simulate(wanted, costs, host, ratios).steps_per_s


def test_one_worker_takes_the_sum_of_its_costs() -> None:
    costs = Costs(worker_s=2 * MILLI, call_s=MILLI, serve_s=3 * MILLI, image_s=0.01 * MILLI)
    found = simulate(shape(Way.ASYNC, 1), costs, APART)
    assert 1 / found.steps_per_s == pytest.approx(7 * MILLI)
    assert (found.worker_cpu_s, found.ps_cpu_s) == pytest.approx((4 * MILLI, 3 * MILLI))
    assert found.staleness == 0


MS, ALONE = MILLI, Host(cores=1, separate=True)


@pytest.mark.parametrize(
    ("wanted", "costs", "host", "step_s"),
    [
        # Servers work at the same time, and calls after each other on one core.
        (shape(Way.ASYNC, 1, 2), Costs(call_s=MS, serve_s=4 * MS), APART, 5 * MS),
        # Each phase has half of each cost: calls at 0.5 and 1.0, the second server ends at 1 + 2.
        (shape(Way.ASYNC, 1, 2), Costs(call_s=MS, serve_s=4 * MS), ALONE, 6 * MS),
        # Work after the answer delays no step unless the cores are full.
        (shape(Way.ASYNC, 1), Costs(worker_s=MS, serve_s=2 * MS, after=0.5), Host(4), 2 * MS),
        (shape(Way.ASYNC, 1), Costs(worker_s=MS, serve_s=2 * MS, after=0.5), Host(1), 3 * MS),
        # Tasks of one host share its cores.
        (shape(Way.ASYNC, 8), Costs(worker_s=MS, serve_s=MS, update=0.0), Host(2), MS),
        (shape(Way.SYNC, 8), Costs(worker_s=MS, serve_s=MS, update=0.0), Host(2), 8 * MS),
        # Four cores and three tasks: the server gets two cores, as in a plan.
        (shape(Way.ASYNC, 2), Costs(serve_s=2 * MS), Host(4), MS),
        # Two cores and two tasks: each has one of its own.
        (shape(Way.RING, 2), Costs(ring_s=MS), Host(2), MS),
        # A message passes both links at the same time: of a read and a push there are a request,
        # the parameters, the gradients and an answer.
        (shape(Way.ASYNC, 1), Costs(worker_s=MS), Host(4, SIZE / MS, latency_s=MS), 7 * MS),
        # A synchronous step waits for a slow worker.
        (shape(Way.SYNC, 3, shares=(1.0, 0.25)), Costs(worker_s=MS), APART, 4 * MS),
        (shape(Way.RING, 3, shares=(1.0, 0.25)), Costs(ring_s=MS), APART, 4 * MS),
        (shape(Way.ASYNC, 3, shares=(1.0, 0.25)), Costs(worker_s=MS), APART, MS / 2.25),
    ],
)  # fmt: skip
def test_a_step_takes_what_its_queues_take(
    wanted: Shape, costs: Costs, host: Host, step_s: float
) -> None:
    assert 1 / rate(wanted, costs, host) == pytest.approx(step_s, rel=0.02)


@pytest.mark.parametrize("cores", [1, 4, 16])
def test_a_server_with_k_cores_serves_k_calls_at_once(cores: int) -> None:
    serve_s = 2 * MILLI
    host = Host(cores, separate=True)
    found = simulate(shape(Way.ASYNC, 3 * cores), Costs(serve_s=serve_s), host)
    assert found.steps_per_s == pytest.approx(cores / serve_s, rel=0.01)
    assert found.busy["ps"] == pytest.approx(1, rel=0.01)
    assert found.limit in {"cores", "ps"}


def test_mean_wait_of_a_queue_with_random_arrivals_is_that_of_the_formula() -> None:
    # Many workers with exponential own times, each rarely: the server is nearly an M/D/1 queue,
    # whose mean time in the system is s + rho s / 2(1 - rho) (Pollaczek and Khinchine).
    source = random.Random(1)  # noqa: S311
    ratios = tuple(source.expovariate(1) for _ in range(20_000))
    workers, own_s, serve_s = 200, 1.0, 4 * MILLI
    # Only the worker's own time is random: each direction of the server's link is the server.
    link = Host(4, bandwidth=SIZE / serve_s, separate=True)
    found = simulate(shape(Way.ASYNC, workers), Costs(worker_s=own_s), link, ratios, steps=8000)
    rho = found.steps_per_s * serve_s
    assert rho == pytest.approx(0.78, abs=0.03)
    queue_s = serve_s * (1 + rho / 2 / (1 - rho))
    expected = statistics.mean(ratios) * own_s + 2 * queue_s
    assert workers / found.steps_per_s == pytest.approx(expected, rel=0.02)


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
    host = Host(4, bandwidth=1e6, latency_s=2e-4, separate=True)
    costs = Costs(ring_s=MILLI, reduce_s=2 * MILLI, hop_s=0.1 * MILLI, hop_wait_s=0.3 * MILLI)
    phases = 2 * (workers - 1)
    expected = 3 * MILLI + phases * (0.4 * MILLI + SIZE / workers / 1e6 + 2e-4)
    assert 1 / rate(shape(Way.RING, workers), costs, host) == pytest.approx(expected)
    crowded = Host(2)  # all workers on two cores
    reduce_s = workers / 2 * (2 * MILLI + phases * 0.1 * MILLI) + phases * 0.3 * MILLI
    found = 1 / rate(shape(Way.RING, workers), costs, crowded)
    assert found == pytest.approx(ceil(workers / 2) * MILLI + reduce_s)


def test_a_server_sends_no_more_than_its_link_carries() -> None:
    host = Host(64, bandwidth=10e6)
    for ps, size in ((1, SIZE), (2, 31_360)):  # the weights are one variable, on one server
        found = simulate(shape(Way.ASYNC, 64, ps), Costs(worker_s=MILLI), host)
        assert found.steps_per_s == pytest.approx(10e6 / size, rel=0.03)
        assert found.limit == "link"
    beside = Host(64, bandwidth=10e6, nodes=(0,) * 5)
    assert simulate(shape(Way.ASYNC, 4), Costs(worker_s=MILLI), beside).busy["link"] == 0


def test_variables_are_placed_round_robin() -> None:
    assert shape(Way.ASYNC, 1, 3).held() == [31_360, 40, 0]
    mlp = shape(Way.ASYNC, 1, 2, variables=(1_568_000, 2_000, 20_000, 40))
    assert mlp.held() == [1_588_000, 2_040]


def test_equal_seeds_give_equal_results_and_more_steps_narrower_ones() -> None:
    costs = Costs(worker_s=MILLI, serve_s=MILLI)

    def by(seed: int, steps: int) -> float:
        found = simulate(shape(Way.SYNC, 3), costs, Host(2), SPREAD, seed=seed, steps=steps)
        return found.steps_per_s

    assert by(1, 300) == by(1, 300)
    widths = [statistics.stdev(by(seed, steps) for seed in range(6)) for steps in (90, 2000)]
    assert widths[0] > 2 * widths[1] > 0


@pytest.mark.parametrize("way", list(Way))
def test_costs_that_are_twice_as_high_halve_the_speed(way: Way) -> None:
    costs = Costs(MILLI, MILLI, MILLI, 0.4, 0.5, MILLI, MILLI, MILLI, MILLI, 1e-5)
    one, two = (rate(shape(way, 4), costs.scaled(factor), Host(2)) for factor in (1, 2))
    assert two == pytest.approx(one / 2)


@pytest.mark.parametrize(
    ("wrong", "output"),
    [
        (lambda: Shape(Way.ASYNC, 0, 1), "impossible training"),
        (lambda: Shape(Way.RING, 2, 1), "impossible training"),
        (lambda: Shape(Way.ASYNC, 1, 1, shares=(1.0, 0.5)), "do not fit 1 workers"),
        (lambda: Shape(Way.ASYNC, 1, 1, shares=(0.0,)), "do not fit"),
        (lambda: simulate(Shape(Way.ASYNC, 2, 1), Costs(), APART), "takes no time"),
        (lambda: Host(0), "impossible host"),
        (lambda: Host(1, bandwidth=0), "impossible host"),
        (lambda: simulate(Shape(Way.ASYNC, 2, 1), Costs(1), Host(1, nodes=(0,))), "1 nodes"),
        (lambda: Costs(call_s=float("nan")), "call_s is nan: a cost must be finite and at least 0"),
        (lambda: Costs(after=1.5), "after is 1.5: a share is at most 1"),
    ],
)
def test_impossible_input_fails(wrong: object, output: str) -> None:
    with pytest.raises(ValueError, match=output):
        wrong()
