"""The parts of a simulated step, and its servers: no work is lost or invented."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation import Box, Costs, Shape, Way
from lab.simulation.all_reduce import all_reduce
from lab.simulation.engine import Cores, Link, Simulator, Task, cold_factor, factor
from lab.simulation.programs import Dataflow, allocate, async_step, sync_step, sync_update

COSTS = Costs(session_s=1e-3, image_s=1e-5, call_s=1e-4, hop_s=1e-4, byte_s=1e-9)


def remote(flow: Dataflow) -> list[tuple[float, float]]:
    """The traffic from one task to another: (bytes, calls)."""
    return [
        (size, calls)
        for operation in flow.operations
        for target, size, calls in operation.calls
        if flow.operations[target].task != operation.task
    ]


def calls_between_tasks(flow: Dataflow) -> int:
    """The remote calls that carry a tensor, or keep order: TensorFlow's RecvTensor."""
    return sum(calls == 1 for _, calls in remote(flow))


@pytest.mark.parametrize(
    ("make", "calls"),
    [
        # Counted in the partition graphs that TensorFlow 2.21 made of the programs.
        (async_step, {1: 11, 2: 17, 4: 22}),
        (sync_step, {1: 13, 2: 19, 4: 31}),
        (sync_update, {1: 3, 2: 8, 4: 19}),
    ],
)
def test_a_step_makes_the_calls_that_tensorflow_makes(make: object, calls: dict[int, int]) -> None:
    found = {
        ps: calls_between_tasks(make(Shape(Way.SYNC, 3, ps), COSTS))  # type: ignore[operator]
        for ps in calls
    }
    assert found == calls


def test_variables_are_dealt_round_robin() -> None:
    two = allocate(Shape(Way.ASYNC, 1, 2))
    assert (two.held, two.counter, two.probe) == (((31_360,), (40,)), 0, 1)
    three = allocate(Shape(Way.ASYNC, 1, 3))
    assert (three.held, three.counter, three.probe) == (((31_360,), (40,), ()), 2, 0)
    assert (three.readers, three.holders) == ([0, 1], [0, 1])
    mlp = allocate(Shape(Way.ASYNC, 1, 2, variables=(1_568_000, 2_000, 20_000, 40)))
    assert mlp.held == ((1_568_000, 20_000), (2_000, 40))


@pytest.mark.parametrize("ps", [1, 2, 3, 7])
@pytest.mark.parametrize("nodes", [0, 1, 2])
def test_sent_bytes_are_received(ps: int, nodes: int) -> None:
    shape = Shape(Way.ASYNC, 3, ps)
    simulator = Simulator(shape, COSTS, Box(2, nodes, 1e8, 1e-5), seed=0)
    flow = async_step(shape, COSTS)
    made = [simulator.step(flow, worker) for worker in simulator.workers]
    simulator.env.run()
    assert all(event.triggered for event in made)
    expected = [size for size, _ in remote(flow)] * 3
    assert simulator.sent == simulator.received == len(expected)
    assert simulator.payload_bytes == pytest.approx(sum(expected))
    spent = sum(task.cpu_s for task in (*simulator.workers, *simulator.servers))
    assert spent == pytest.approx(sum(node.cores.busy_s for node in simulator.nodes))
    calls = sum(calls for _, calls in remote(flow)) * 3
    work = 3 * (COSTS.session_s + 100 * COSTS.image_s)
    assert spent == pytest.approx(work + 2 * (calls * COSTS.call_s + sum(expected) * COSTS.byte_s))


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_a_ring_sends_every_part_to_every_worker(workers: int) -> None:
    simulator = Simulator(Shape(Way.RING, workers, 0), COSTS, Box(4, 0, 1e8, 1e-5), seed=0)
    made = all_reduce(simulator)
    simulator.env.run()
    assert made.triggered
    assert simulator.sent == simulator.received == workers * 2 * (workers - 1)


def test_a_worker_that_is_late_holds_the_ring_up_but_not_its_first_messages() -> None:
    shape = Shape(Way.RING, 3, 0, slowness=(1.0, 1.0, 10.0))
    simulator = Simulator(shape, Costs(device_s=1.0), Box(4, 0), seed=0)
    made = all_reduce(simulator)
    simulator.env.run(until=5.0)
    # The two that are ready have sent their first, and the second the message from the first.
    assert (simulator.received, made.triggered) == (3, False)
    simulator.env.run()
    assert simulator.now == pytest.approx(10.0)


def test_a_synchronous_update_waits_for_every_gradient() -> None:
    shape = Shape(Way.SYNC, 2, 2)
    simulator = Simulator(shape, COSTS, Box(8), seed=0)
    update = simulator.step(sync_update(shape, COSTS), simulator.workers[0])
    first = simulator.step(sync_step(shape, COSTS), simulator.workers[0])
    simulator.env.run()
    assert not update.triggered
    assert not first.triggered
    second = simulator.step(sync_step(shape, COSTS), simulator.workers[1])
    simulator.env.run()
    assert update.triggered
    assert first.triggered
    assert second.triggered


def test_cores_serve_in_order_of_arrival() -> None:
    cores = Cores(2)
    assert [cores.serve(0.0, seconds) for seconds in (3.0, 1.0, 1.0, 4.0)] == [3.0, 1.0, 2.0, 6.0]
    assert cores.serve(10.0, 1.0) == 11.0
    assert cores.busy_s == 10.0
    # Work of others is served like all else, and is not counted.
    assert (cores.occupy(10.0, 3.0), cores.serve(10.0, 1.0), cores.busy_s) == (13.0, 12.0, 11.0)


@given(st.integers(1, 4), st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2)), max_size=40))
def test_no_more_parallel_work_than_cores(count: int, asked: list[tuple[float, float]]) -> None:
    cores, now = Cores(count), 0.0
    spans = []
    for pause, seconds in asked:
        now += pause
        done = cores.serve(now, seconds)
        assert done - seconds >= now - 1e-9
        spans.append((done - seconds, done))
    for begin, _ in spans:
        assert sum(start <= begin + 1e-9 < end - 1e-9 for start, end in spans) <= count
    assert cores.busy_s == pytest.approx(sum(end - begin for begin, end in spans))


def test_work_takes_longer_where_tasks_share_cores() -> None:
    assert [cold_factor(0.8, 4, tasks) for tasks in (1, 4, 8, 16)] == pytest.approx(
        [1, 1, 1.4, 1.6]
    )
    assert cold_factor(0.0, 1, 100) == 1.0


def test_a_link_carries_one_message_after_another() -> None:
    link = Link(100.0, 0.5)
    assert link.send(0.0, 100.0) == (0.5, 1.5)  # one second of bytes, and the latency
    assert link.send(0.0, 100.0) == (1.5, 2.5)  # after it on the way out
    assert link.receive(0.5, 100.0, 1.5) == 1.5  # the other direction is free
    assert link.receive(0.5, 100.0, 1.5) == 2.5  # after it on the way in
    assert (link.out_busy_s, link.in_busy_s) == (2.0, 2.0)


def test_a_slow_end_slows_a_message() -> None:
    fast, slow = Link(100.0, 0.5), Link(10.0, 0.5)
    assert slow.receive(0.5, 100.0, fast.send(0.0, 100.0)[1]) == 10.5
    assert fast.receive(0.5, 100.0, slow.send(0.0, 100.0)[1]) == 10.5


def test_messages_are_received_in_order_of_arrival() -> None:
    # One sender's link is full for 10 s before its message leaves; the other's leaves at 1 s.
    simulator = Simulator(Shape(Way.RING, 3, 0), Costs(), Box(4, 0, 100.0, 0.5), seed=0)
    busy, free, receiver = simulator.workers
    came = {}

    def send(source: Task, name: str) -> None:
        def taken() -> None:
            came[name] = simulator.now

        simulator.send(source, receiver, taken, size=100.0, cpu_s=0.0, wait_s=0.0, header=0.0)

    busy.node.link.send(0.0, 1000.0)
    send(busy, "sent at once")
    simulator.call_later(1.0, lambda: send(free, "sent later"))
    simulator.env.run()
    assert came == {"sent later": 2.5, "sent at once": 11.5}


def test_a_task_does_one_thing_after_another() -> None:
    simulator = Simulator(Shape(Way.RING, 2, 0), Costs(), Box(4), seed=0)
    one, other = simulator.workers
    done: list[tuple[str, float]] = []
    for task, name, seconds in ((one, "a", 3.0), (one, "b", 1.0), (other, "c", 2.0)):
        simulator.spend(task, seconds, lambda name=name: done.append((name, simulator.now)))
    simulator.env.run()
    # Although there are more cores than work, b waits for a; the other task does not.
    assert done == [("c", 2.0), ("a", 3.0), ("b", 4.0)]


def test_a_task_that_waits_for_itself_keeps_no_core_from_others() -> None:
    simulator = Simulator(Shape(Way.RING, 2, 0), Costs(), Box(2), seed=0)
    one, other = simulator.workers
    done = {}
    for task, name in ((one, "a"), (one, "b"), (other, "c"), (other, "d")):
        simulator.spend(task, 1.0, lambda name=name: done.update({name: simulator.now}))
    simulator.env.run()
    assert done == {"a": 1.0, "c": 1.0, "b": 2.0, "d": 2.0}


def test_tasks_are_on_their_hosts() -> None:
    shape = Shape(Way.ASYNC, 3, 1)
    dealt = Simulator(shape, COSTS, Box(2, 2), seed=0)
    assert [task.node is dealt.nodes[0] for task in (*dealt.servers, *dealt.workers)] == (
        [True, False, True, False]
    )
    box = Box(2, 3, ps_on=(2,), worker_on=(0, 0, 2, 1))
    assert box.places(shape) == [2, 0, 0, 2]  # those of the first workers
    placed = Simulator(shape, COSTS, box, seed=0)
    assert placed.servers[0].node is placed.workers[2].node
    assert placed.workers[0].node is placed.workers[1].node
    assert len(placed.nodes) == 2
    assert Box(2, 0).places(shape) == [0, 1, 2, 3]


def test_a_factor_varies_around_one() -> None:
    source = random.Random(0)  # noqa: S311
    drawn = [factor(source, 0.3) for _ in range(20_000)]
    assert statistics.mean(drawn) == pytest.approx(1, abs=0.01)
    assert statistics.stdev(drawn) == pytest.approx(0.3, abs=0.01)
    assert min(drawn) > 0
    assert factor(source, 0.0) == 1.0
