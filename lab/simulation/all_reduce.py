"""The step of a ring all-reduce: n workers send shares of 1/n to the next one, in 2(n - 1) phases.

The first n - 1 phases add up each share on its way around, the others distribute the sums
(P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
2009). A worker sends in a phase what it has received in the one before.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import simpy

from lab.simulation.engine import World

LOSS_BYTES: Final = 4  # the mean loss is reduced in the same way


def all_reduce(world: World) -> simpy.Event:
    """Let every worker compute, and then all of them reduce; the event that all have made the step.

    Each tensor has a ring of its own, for the gradients and the loss, and these go one after
    another. They are simulated as one ring of as many calls a phase: it takes as long, in fewer
    events.
    """
    shape, costs, workers = world.shape, world.costs, world.workers
    tensors, phases = len(shape.variables) + 1, 2 * (shape.workers - 1)
    # Each of the rings that go one after another pays the link's latency.
    apart = len(world.nodes) > 1
    extra_s = (tensors - 1) / tensors * world.box.latency_s if apart else 0.0
    made, unfinished = world.env.event(), set(range(shape.workers))
    ready = [False] * shape.workers
    sent, received = [0] * shape.workers, [0] * shape.workers

    def compute(index: int) -> None:
        world.compute(workers[index], partial(computed, index))

    def computed(index: int) -> None:
        ready[index] = True
        go_on(index)

    def receive(index: int) -> None:
        received[index] += 1
        if ready[index]:  # a worker that still computes does not pass on what has come
            go_on(index)

    def go_on(index: int) -> None:
        following = (index + 1) % shape.workers
        while sent[index] < min(phases, received[index] + 1):
            sent[index] += 1
            world.send(
                workers[index],
                workers[following],
                partial(receive, following),
                size=(shape.parameter_bytes + LOSS_BYTES) / shape.workers,
                cpu_s=tensors * costs.hop_s,
                wait_s=tensors * (costs.hop_wait_s + extra_s),
                header=tensors * costs.call_bytes,
            )
        if received[index] == phases:
            unfinished.remove(index)
            if not unfinished:
                made.succeed()

    for index, worker in enumerate(workers):
        session_s = costs.eager_s + shape.batch_size * costs.feed_s
        world.spend(worker, session_s, partial(compute, index))
    return made
