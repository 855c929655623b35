"""A ring all-reduce: n workers, 2(n - 1) phases, in each a share of 1/n to the next one.

The first n - 1 phases add up each share on its way around, the others tell the sums (P. Patarasuk
and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009). A worker
sends in a phase what it got in the one before.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import simpy

from lab.simulation.model import Shape
from lab.simulation.world import World

LOSS_BYTES: Final = 4  # the mean loss is reduced in the same way


def phases(workers: int) -> int:
    """How many phases there are."""
    return 2 * (workers - 1)


def tensors(shape: Shape) -> int:
    """How many tensors are reduced, each in a ring of its own: the gradients and the loss."""
    return len(shape.variables) + 1


def phase_bytes(shape: Shape) -> float:
    """Bytes that a worker sends to the next one in a phase."""
    return (shape.parameter_bytes + LOSS_BYTES) / shape.workers


def all_reduce(world: World) -> simpy.Event:
    """Let every worker compute, and then all of them reduce; the event that all have made the step.

    The tensors' rings, which go one after another, are taken as one of as many calls a phase: it
    takes as long, in fewer events.
    """
    shape, costs = world.shape, world.costs
    count, calls = tensors(shape), phases(shape.workers)
    size, workers = phase_bytes(shape), world.workers
    made, left = world.env.event(), len(workers)
    # How many phases' messages a worker has received, and how many it may send: a worker that has
    # not computed yet does not pass on what has come.
    received, sent, ready = [0] * left, [0] * left, [False] * left

    def computed(index: int) -> None:
        ready[index] = True
        go_on(index)

    def go_on(index: int) -> None:
        nonlocal left
        while ready[index] and sent[index] < min(calls, received[index] + 1):
            sent[index] += 1
            following = (index + 1) % len(workers)
            world.send(
                workers[index],
                workers[following],
                partial(take, following),
                size=size,
                cpu_s=count * costs.hop_s,
                wait_s=count * (costs.hop_wait_s + extra_s),
                header=count * costs.call_bytes,
            )
        if ready[index] and received[index] == calls and sent[index] == calls:
            ready[index] = False
            left -= 1
            if not left:
                made.succeed()

    def take(index: int) -> None:
        received[index] += 1
        go_on(index)

    # Of the rings that go one after another the link's latency is paid by each.
    apart = len(world.nodes) > 1
    extra_s = (count - 1) / count * world.box.latency_s if apart else 0.0

    def begin(index: int) -> None:
        world.spend(
            workers[index],
            costs.eager_s + shape.batch_size * costs.feed_s,
            lambda: world.compute(workers[index], lambda: computed(index)),
        )

    for index in range(len(workers)):
        begin(index)
    return made
