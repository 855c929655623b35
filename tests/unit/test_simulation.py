"""The simulated training compared with closed forms, whose results are known without simulating."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.simulation import MEASURED, Box, Costs, Forecast, Shape, Way, least_bytes, simulate
from lab.simulation.all_reduce import LOSS_BYTES

MILLI = 1e-3
SIZE = 31_400  # bytes of softmax regression's parameters: 784 * 10 + 10 of 4 bytes
APART = Box(cores=64, nodes=0)  # every task has its own machine, with more cores than work
SERVED = (Way.ASYNC, Way.SYNC)


def shape(way: Way, workers: int, ps: int = 1, **more: object) -> Shape:
    return Shape(way, workers, 0 if way is Way.RING else ps, **more)  # type: ignore[arg-type]


def test_one_worker_takes_the_sum_of_its_costs() -> None:
    costs = Costs(session_s=2 * MILLI, image_s=0.01 * MILLI, apply_byte_s=1e-8)
    found = simulate(shape(Way.ASYNC, 1), costs, APART)
    assert 1 / found.steps_per_s == pytest.approx(2 * MILLI + 100 * 0.01 * MILLI + SIZE * 1e-8)
    assert found.computing == pytest.approx(1 * MILLI * found.steps_per_s)


def test_on_one_core_a_step_takes_all_cpu_time_of_all_tasks() -> None:
    # 13 calls of two ends each, of which the tidying up is one half and one half.
    costs = Costs(session_s=MILLI, call_s=0.1 * MILLI, byte_s=1e-8)
    found = simulate(shape(Way.ASYNC, 1), costs, Box(cores=1))
    payload = 2 * SIZE + 2 * 8 + 2 * 4  # the step twice, the rate and the probe's gradient
    expected = MILLI + 2 * 13 * 0.1 * MILLI + 2 * payload * 1e-8
    assert 1 / found.steps_per_s == pytest.approx(expected, rel=0.01)
    assert found.worker_cpu_s + found.ps_cpu_s == pytest.approx(expected, rel=0.01)
    assert found.payload_bytes == pytest.approx(payload, rel=0.01)
    assert found.cores_busy == pytest.approx(1, rel=0.01)


def test_a_gpu_computes_while_no_core_is_busy() -> None:
    costs = Costs(session_s=MILLI, feed_s=0.01 * MILLI, image_s=MILLI, device_s=3 * MILLI)
    found = simulate(shape(Way.ASYNC, 1), costs, Box(cores=1))
    assert 1 / found.steps_per_s == pytest.approx((1 + 1 + 3) * MILLI)
    assert found.worker_cpu_s == pytest.approx(2 * MILLI)
    assert found.waiting == pytest.approx(0)


def test_workers_wait_for_a_server_that_is_busy() -> None:
    costs = Costs(call_s=0.1 * MILLI, image_s=0.01 * MILLI)
    alone, found = (simulate(shape(Way.ASYNC, n), costs, APART) for n in (1, 16))
    for each in (alone, found):
        busy = each.worker_cpu_s * each.steps_per_s / each.shape.workers
        assert each.waiting == pytest.approx(1 - busy)
    assert alone.waiting < 0.5
    assert found.waiting > 0.8


@pytest.mark.parametrize("way", list(Way))
def test_feeding_is_not_computing(way: Way) -> None:
    costs = Costs(feed_s=0.03 * MILLI, image_s=0.01 * MILLI)
    found = simulate(shape(way, 2, 1, batch_size=50), costs, APART)
    steps_of_each = 2 if way is Way.ASYNC else 1
    assert steps_of_each / found.steps_per_s == pytest.approx(50 * 0.04 * MILLI)
    assert found.computing == pytest.approx(1 / 4)


@pytest.mark.parametrize("workers", [1, 2, 7, 32])
def test_where_nothing_is_shared_workers_scale_ideally(workers: int) -> None:
    costs = Costs(image_s=0.01 * MILLI, spread=0.2)
    alone, found = (simulate(shape(Way.ASYNC, n), costs, APART) for n in (1, workers))
    assert found.efficiency(alone) == pytest.approx(1, rel=0.05)
    assert found.staleness == pytest.approx(workers - 1, abs=0.1 * workers)


@pytest.mark.parametrize("ps", [1, 2])
def test_a_server_hands_out_no_more_than_its_link_carries(ps: int) -> None:
    bandwidth = 10e6
    box = Box(cores=64, nodes=0, bandwidth=bandwidth, latency_s=1e-5)
    # Both directions of the link carry as much: a closed network of two equal queues is n / (n + 1)
    # busy with n customers, so it takes many workers to fill either.
    found = simulate(shape(Way.ASYNC, 128, ps), Costs(session_s=MILLI), box)
    # The weights are one variable: a second server takes the biases alone off the first.
    busiest = 31_360 + (40 if ps == 1 else 0)
    assert found.steps_per_s == pytest.approx(bandwidth / busiest, rel=0.02)
    assert found.link_busy == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("ps", [1, 2, 4])
def test_a_synchronous_step_waits_for_the_slowest_worker(ps: int) -> None:
    costs = Costs(image_s=0.01 * MILLI)
    wanted = shape(Way.SYNC, 3, ps, slowness=(1.0, 1.0, 5.0))
    found = simulate(wanted, costs, APART)
    assert 1 / found.steps_per_s == pytest.approx(5 * MILLI)
    assert found.computing == pytest.approx((1 + 1 + 5) / 3 / 5)
    assert found.images_per_s == pytest.approx(300 * found.steps_per_s)
    assert found.staleness is None
    asynchronous = simulate(replace(wanted, way=Way.ASYNC), costs, APART)
    assert asynchronous.images_per_s == pytest.approx(100 * (1 + 1 + 0.2) / MILLI, rel=0.05)


@pytest.mark.parametrize("workers", [1, 2, 5, 100])
def test_a_ring_takes_what_its_formula_says(workers: int) -> None:
    bandwidth, latency_s = 1e6, 2e-4
    box = Box(cores=4, nodes=0, bandwidth=bandwidth, latency_s=latency_s)
    found = simulate(shape(Way.RING, workers), Costs(device_s=MILLI), box)
    phases = 2 * (workers - 1)
    reduced = SIZE + LOSS_BYTES
    # Weights, biases and the loss go round one after another: each pays the latency.
    ring_s = phases / workers * reduced / bandwidth + 3 * phases * latency_s
    assert 1 / found.steps_per_s == pytest.approx(MILLI + ring_s)
    assert found.payload_bytes == pytest.approx(phases * reduced)


def test_calls_in_a_ring_cost_both_ends() -> None:
    found = simulate(shape(Way.RING, 2), Costs(eager_s=MILLI, hop_s=MILLI), Box(cores=1))
    # Two workers, two phases, three tensors, two ends of each call.
    assert found.worker_cpu_s == pytest.approx(2 * MILLI + 2 * 2 * 3 * 2 * MILLI)
    assert 1 / found.steps_per_s == pytest.approx(found.worker_cpu_s)


def test_a_ring_waits_for_its_slowest_worker() -> None:
    costs = Costs(device_s=MILLI)
    found = simulate(shape(Way.RING, 4, slowness=(1.0, 3.0, 1.0, 1.0)), costs, APART)
    assert 1 / found.steps_per_s == pytest.approx(3 * MILLI)


def test_the_least_bytes_of_a_step() -> None:
    assert least_bytes(shape(Way.ASYNC, 8)) == 2 * SIZE
    assert least_bytes(shape(Way.SYNC, 8)) == 2 * SIZE * 8
    assert least_bytes(shape(Way.RING, 1)) == 0
    assert least_bytes(shape(Way.RING, 8)) == 8 * (2 * 7 / 8 * SIZE)


@pytest.mark.parametrize("way", list(Way))
def test_a_step_moves_hardly_more_than_needed(way: Way) -> None:
    found = simulate(shape(way, 4, 2), replace(MEASURED, call_bytes=0), Box(2))
    assert 1 <= found.payload_bytes / least_bytes(found.shape) < 1.03


@pytest.mark.parametrize("way", list(Way))
def test_the_same_seed_gives_the_same_and_another_one_another(way: Way) -> None:
    def by(seed: int) -> Forecast:
        return simulate(shape(way, 3), replace(MEASURED, spread=0.3), Box(2), seed=seed)

    assert by(1) == by(1)
    assert by(1).steps_per_s != by(2).steps_per_s


def test_varying_times_slow_down_waiting_tasks() -> None:
    costs = Costs(image_s=0.01 * MILLI, spread=0.5)
    for way, costly in ((Way.ASYNC, False), (Way.SYNC, True), (Way.RING, True)):
        alone, found = (simulate(shape(way, n), costs, APART) for n in (1, 16))
        assert (found.efficiency(alone) < 0.7) == costly


def test_where_tasks_share_a_core_all_work_takes_longer() -> None:
    costs = Costs(session_s=MILLI, crowding=0.6)
    rates = {
        cores: simulate(shape(Way.ASYNC, 2), costs, Box(cores=cores)).steps_per_s
        for cores in (1, 3)
    }
    assert rates[3] == pytest.approx(2 / MILLI, rel=0.05)
    assert rates[1] == pytest.approx(1 / ((1 + 0.6 * (1 - 1 / 3)) * MILLI), rel=0.05)


@pytest.mark.parametrize("taken", [0.3, 0.5, 1.0])
def test_cores_used_by_others_are_missing(taken: float) -> None:
    costs = Costs(image_s=0.01 * MILLI)
    found = simulate(shape(Way.ASYNC, 8), costs, Box(2, taken=taken))
    assert found.steps_per_s == pytest.approx((2 - taken) / MILLI, rel=0.03)
    assert found.cores_busy == pytest.approx((2 - taken) / 2, rel=0.03)
    assert found.worker_cpu_s == pytest.approx(MILLI, rel=0.02)
    # Where a core is free for them, others take nothing from the training.
    alone = simulate(shape(Way.ASYNC, 1), costs, Box(3, taken=min(1.0, taken)))
    assert alone.steps_per_s == pytest.approx(1 / MILLI, rel=0.01)


def test_a_server_with_many_cores_serves_one_call_after_another() -> None:
    costs = Costs(call_s=0.1 * MILLI)
    found = simulate(shape(Way.ASYNC, 16), costs, Box(cores=64))
    assert found.ps_cores == pytest.approx(1, rel=0.02)


def test_computing_takes_as_long_as_it_does_on_cold_cores() -> None:
    costs = Costs(image_s=0.01 * MILLI, crowding=1.0)
    found = simulate(shape(Way.ASYNC, 1), costs, Box(cores=1))  # the server has the core, too
    assert 1 / found.steps_per_s == pytest.approx(1.5 * MILLI)
    assert found.computing == pytest.approx(1)


@settings(max_examples=40)
@given(
    way=st.sampled_from(list(Way)),
    bandwidth=st.floats(1e4, 1e9),
    more=st.floats(1, 100),
    latency_s=st.floats(0, 1e-2),
)
def test_more_bandwidth_and_less_latency_are_never_slower(
    way: Way, bandwidth: float, more: float, latency_s: float
) -> None:
    # Several workers may meet in another order then, which may cost them; one alone cannot.
    wanted = shape(way, 4 if way is Way.RING else 1)
    slow = simulate(wanted, MEASURED, Box(64, 0, bandwidth, latency_s))
    fast = simulate(wanted, MEASURED, Box(64, 0, bandwidth * more, latency_s / more))
    assert fast.steps_per_s >= slow.steps_per_s * (1 - 1e-9)


@settings(max_examples=40)
@given(
    way=st.sampled_from(list(Way)),
    workers=st.integers(1, 9),
    ps=st.integers(1, 6),
    cores=st.integers(1, 9),
    nodes=st.integers(0, 5),
    spread=st.sampled_from([0.0, 0.4]),
)
def test_no_more_work_than_time(
    way: Way, workers: int, ps: int, cores: int, nodes: int, spread: float
) -> None:
    box = Box(cores, nodes, bandwidth=1e8, latency_s=1e-5)
    found = simulate(shape(way, workers, ps), replace(MEASURED, spread=spread), box)
    all_cores = cores * (nodes or workers + ps)
    # What is counted begins and ends amid some steps: by as much the sums may be off.
    assert (found.worker_cpu_s + found.ps_cpu_s) * found.steps_per_s <= all_cores * 1.1
    for share in (found.computing, found.cores_busy, found.link_busy):
        assert 0 <= share <= 1.0 + 1e-9
    assert found.wire_bytes >= found.payload_bytes
    if found.staleness is not None:
        assert 0 <= found.staleness <= workers - 1 + 0.5


@pytest.mark.parametrize("way", SERVED)
def test_crowds_are_simulated_to_an_end(way: Way) -> None:
    found = simulate(shape(way, 64, 4), MEASURED, Box(16, 0, 12.5e9, 2e-5))
    assert found.images_per_s > 0


@pytest.mark.parametrize(
    ("wrong", "output"),
    [
        (lambda: Shape(Way.ASYNC, 0, 1), "impossible training"),
        (lambda: Shape(Way.SYNC, 1, 0), "impossible training"),
        (lambda: Shape(Way.RING, 2, 1), "impossible training"),
        (lambda: Shape(Way.ASYNC, 2, 1, slowness=(1.0,)), "slowness has 1 values for 2 workers"),
        (lambda: simulate(Shape(Way.ASYNC, 2, 1), Costs(), APART), "takes no time"),
        (lambda: simulate(Shape(Way.RING, 3, 0), Costs(), APART), "takes no time"),
        (lambda: Box(0), "impossible hardware"),
        (lambda: Box(1, bandwidth=0), "impossible hardware"),
        (lambda: Box(2, taken=2.0), "other programs cannot use 2.0 of 2 cores"),
        (lambda: Box(2, taken=-0.1), "other programs cannot use -0.1 of 2 cores"),
        (lambda: Box(2, taken=float("nan")), "other programs cannot use nan of 2 cores"),
        (lambda: Box(2, 2, worker_on=(0, 2)), "a task is on a node that does not exist"),
        (lambda: Box(2, 0, worker_on=(0,)), "a task is on a node that does not exist"),
        (
            lambda: simulate(Shape(Way.ASYNC, 2, 1), MEASURED, Box(2, 2, worker_on=(0, 1))),
            "ps_on or worker_on is too short",
        ),
        (lambda: Costs(call_s=-1e-6), "call_s is -1e-06: a cost must be finite and at least 0"),
        (lambda: Costs(call_s=float("nan")), "call_s is nan: a cost must be finite and at least 0"),
    ],
)
def test_impossible_input_fails(wrong: object, output: str) -> None:
    with pytest.raises(ValueError, match=output):
        wrong()  # type: ignore[operator]
