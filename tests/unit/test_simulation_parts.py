"""What a simulated step consists of, and what serves it: nothing is lost, nothing made up."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation import Box, Costs, Shape, Way
from lab.simulation.all_reduce import all_reduce
from lab.simulation.engine import Cores, Link, Task, World, coldness, factor
from lab.simulation.programs import Dataflow, allocate, async_step, sync_step, sync_update

COSTS = Costs(session_s=1e-3, image_s=1e-5, call_s=1e-4, hop_s=1e-4, byte_s=1e-9)


def remote(flow: Dataflow) -> list[tuple[float, float]]:
    """What goes from one task to another: (bytes, calls)."""
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
def test_what_is_sent_is_received(ps: int, nodes: int) -> None:
    shape = Shape(Way.ASYNC, 3, ps)
    world = World(shape, COSTS, Box(2, nodes, 1e8, 1e-5), seed=0)
    flow = async_step(shape, COSTS)
    made = [world.step(flow, worker) for worker in world.workers]
    world.env.run()
    assert all(event.triggered for event in made)
    expected = [size for size, _ in remote(flow)] * 3
    assert world.sent == world.received == len(expected)
    assert world.payload_bytes == pytest.approx(sum(expected))
    spent = sum(task.cpu_s for task in (*world.workers, *world.servers))
    assert spent == pytest.approx(sum(node.cores.busy_s for node in world.nodes))
    calls = sum(calls for _, calls in remote(flow)) * 3
    work = 3 * (COSTS.session_s + 100 * COSTS.image_s)
    assert spent == pytest.approx(work + 2 * (calls * COSTS.call_s + sum(expected) * COSTS.byte_s))


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_a_ring_brings_every_share_to_everyone(workers: int) -> None:
    world = World(Shape(Way.RING, workers, 0), COSTS, Box(4, 0, 1e8, 1e-5), seed=0)
    made = all_reduce(world)
    world.env.run()
    assert made.triggered
    assert world.sent == world.received == workers * 2 * (workers - 1)


def test_a_worker_that_is_late_holds_the_ring_up_but_not_its_first_messages() -> None:
    shape = Shape(Way.RING, 3, 0, slowness=(1.0, 1.0, 10.0))
    world = World(shape, Costs(device_s=1.0), Box(4, 0), seed=0)
    made = all_reduce(world)
    world.env.run(until=5.0)
    # The two that are ready have sent their first, and the second what it got from the first.
    assert (world.received, made.triggered) == (3, False)
    world.env.run()
    assert world.now == pytest.approx(10.0)


def test_a_synchronous_update_waits_for_every_gradient() -> None:
    shape = Shape(Way.SYNC, 2, 2)
    world = World(shape, COSTS, Box(8), seed=0)
    update = world.step(sync_update(shape, COSTS), world.workers[0])
    first = world.step(sync_step(shape, COSTS), world.workers[0])
    world.env.run()
    assert not update.triggered
    assert not first.triggered
    second = world.step(sync_step(shape, COSTS), world.workers[1])
    world.env.run()
    assert update.triggered
    assert first.triggered
    assert second.triggered


def test_cores_serve_in_order_of_arrival() -> None:
    cores = Cores(2)
    assert [cores.serve(0.0, seconds) for seconds in (3.0, 1.0, 1.0, 4.0)] == [3.0, 1.0, 2.0, 6.0]
    assert cores.serve(10.0, 1.0) == 11.0
    assert cores.busy_s == 10.0
    # What others take is served like all else, and is not counted.
    assert (cores.take(10.0, 3.0), cores.serve(10.0, 1.0), cores.busy_s) == (13.0, 12.0, 11.0)


@given(st.integers(1, 4), st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2)), max_size=40))
def test_cores_never_do_more_at_once_than_there_are(
    count: int, asked: list[tuple[float, float]]
) -> None:
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
    assert [coldness(0.8, 4, tasks) for tasks in (1, 4, 8, 16)] == pytest.approx([1, 1, 1.4, 1.6])
    assert coldness(0.0, 1, 100) == 1.0


def test_a_link_carries_one_message_after_another() -> None:
    link = Link(100.0, 0.5)
    assert link.send(0.0, 100.0) == (0.5, 1.5)  # one second of bytes, and the latency
    assert link.send(0.0, 100.0) == (1.5, 2.5)  # behind it on the way out
    assert link.receive(0.5, 100.0, 1.5) == 1.5  # the other direction is free
    assert link.receive(0.5, 100.0, 1.5) == 2.5  # behind it on the way in
    assert (link.out_busy_s, link.in_busy_s) == (2.0, 2.0)


def test_a_slow_end_slows_a_message() -> None:
    fast, slow = Link(100.0, 0.5), Link(10.0, 0.5)
    assert slow.receive(0.5, 100.0, fast.send(0.0, 100.0)[1]) == 10.5
    assert fast.receive(0.5, 100.0, slow.send(0.0, 100.0)[1]) == 10.5


def test_who_comes_first_is_received_first_whoever_sent_first() -> None:
    # One sender's link is full for 10 s before its message leaves; the other's leaves at 1 s.
    world = World(Shape(Way.RING, 3, 0), Costs(), Box(4, 0, 100.0, 0.5), seed=0)
    busy, free, receiver = world.workers
    came = {}

    def send(source: Task, name: str) -> None:
        def taken() -> None:
            came[name] = world.now

        world.send(source, receiver, taken, size=100.0, cpu_s=0.0, wait_s=0.0, header=0.0)

    busy.node.link.send(0.0, 1000.0)
    send(busy, "sent at once")
    world.later(1.0, lambda: send(free, "sent later"))
    world.env.run()
    assert came == {"sent later": 2.5, "sent at once": 11.5}


def test_a_task_does_one_thing_after_another() -> None:
    world = World(Shape(Way.RING, 2, 0), Costs(), Box(4), seed=0)
    one, other = world.workers
    done: list[tuple[str, float]] = []
    for task, name, seconds in ((one, "a", 3.0), (one, "b", 1.0), (other, "c", 2.0)):
        world.spend(task, seconds, lambda name=name: done.append((name, world.now)))
    world.env.run()
    # Though there are more cores than work, b waits for a; the other task does not.
    assert done == [("c", 2.0), ("a", 3.0), ("b", 4.0)]


def test_a_task_that_waits_for_itself_keeps_no_core_from_others() -> None:
    world = World(Shape(Way.RING, 2, 0), Costs(), Box(2), seed=0)
    one, other = world.workers
    done = {}
    for task, name in ((one, "a"), (one, "b"), (other, "c"), (other, "d")):
        world.spend(task, 1.0, lambda name=name: done.update({name: world.now}))
    world.env.run()
    assert done == {"a": 1.0, "c": 1.0, "b": 2.0, "d": 2.0}


def test_tasks_are_where_a_box_says() -> None:
    shape = Shape(Way.ASYNC, 3, 1)
    dealt = World(shape, COSTS, Box(2, 2), seed=0)
    assert [task.node is dealt.nodes[0] for task in (*dealt.servers, *dealt.workers)] == (
        [True, False, True, False]
    )
    box = Box(2, 3, ps_on=(2,), worker_on=(0, 0, 2, 1))
    assert box.places(shape) == [2, 0, 0, 2]  # those of the first workers
    placed = World(shape, COSTS, box, seed=0)
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
