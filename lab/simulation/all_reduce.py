"""The step of a ring all-reduce: n workers send shares of 1/n to the next one, in 2(n - 1) phases.

The first n - 1 phases sum each share around the ring, the other phases distribute the sums
(P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
2009). In each phase a worker sends the share that it received in the previous phase.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import simpy

from lab.simulation.engine import Simulator

LOSS_BYTES: Final = 4  # the mean loss is reduced by the same ring


def all_reduce(simulator: Simulator) -> simpy.Event:
    """Start a step: every worker computes, then all reduce. Return the event of the step's end.

    In reality each tensor (the gradients and the loss) has its own ring, one after another. They
    are simulated as one ring with the calls of all tensors in each phase. This takes the same time
    with fewer events.
    """
    shape, costs, workers = simulator.shape, simulator.costs, simulator.workers
    tensors, phases = len(shape.variables) + 1, 2 * (shape.workers - 1)
    # Each of the consecutive rings pays the link's latency.
    apart = len(simulator.nodes) > 1
    extra_s = (tensors - 1) / tensors * simulator.box.latency_s if apart else 0.0
    made, unfinished = simulator.env.event(), set(range(shape.workers))
    ready = [False] * shape.workers
    sent, received = [0] * shape.workers, [0] * shape.workers

    def compute(index: int) -> None:
        simulator.compute(workers[index], partial(computed, index))

    def computed(index: int) -> None:
        ready[index] = True
        send_next(index)

    def receive(index: int) -> None:
        received[index] += 1
        if ready[index]:  # a worker that still computes does not forward shares
            send_next(index)

    def send_next(index: int) -> None:
        following = (index + 1) % shape.workers
        while sent[index] < min(phases, received[index] + 1):
            sent[index] += 1
            simulator.send(
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
        simulator.spend(worker, session_s, partial(compute, index))
    return made
