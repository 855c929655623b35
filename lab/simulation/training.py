"""A training: every worker makes step after step; its figures are those of the steady state."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

import simpy

from lab.simulation.all_reduce import all_reduce
from lab.simulation.engine import World
from lab.simulation.model import Box, Costs, Forecast, Shape, Way
from lab.simulation.programs import Mark, async_step, sync_step, sync_update

WARM_UP: Final = 3
"""Rounds that do not count: queues fill, and workers fall out of step. A round is one step of each
worker."""
LEAST: Final = 4
"""The fewest rounds that count. They are whole: where the workers are in step, part of a round
counts for more or less than it takes."""
ENOUGH: Final = 200
"""Steps of all workers together that are enough."""
MANY: Final = 64
"""With more workers a round of a ring is like the next: one of them is enough."""

Process = Generator[simpy.Event, Any, None]


def simulate(
    shape: Shape, costs: Costs, box: Box, *, seed: int = 0, steps: int = ENOUGH
) -> Forecast:
    """Simulate a training until its figures are known.

    Args:
        shape: What is trained, and by how many.
        costs: What a step costs.
        box: What it is trained on.
        seed: Of what varies; the same gives the same.
        steps: Steps of all workers together that are enough; where nothing varies, few are.

    Returns:
        Its figures in the steady state, after the first steps.

    Raises:
        ValueError: Nothing in a step takes any time.
    """
    world = World(shape, costs, box, seed)
    training = _Training(world)
    steps_of_round = shape.workers if shape.way is Way.ASYNC else 1
    warm_up, rounds = WARM_UP, max(LEAST, math.ceil(steps / shape.workers))
    if shape.way is Way.RING and shape.workers > MANY:
        warm_up, rounds = 0, 1
    training.run_until(warm_up * steps_of_round)
    before = training.counts()
    training.run_until((warm_up + rounds) * steps_of_round)
    return training.forecast(before)


class _Training:
    """The processes of a training.

    Args:
        world: What it runs on.

    Attributes:
        steps: Global steps so far.
        stale: Updates by others between a worker's read and its own update, so far.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.steps = self.stale = 0
        self._waiting: dict[int, simpy.Event] = {}
        shape, costs, workers = world.shape, world.costs, world.workers
        match shape.way:
            case Way.RING:
                self._repeat(partial(all_reduce, world), self._stepped)
            case Way.ASYNC:
                flow = async_step(shape, costs)
                for worker in workers:
                    self._repeat(partial(world.step, flow, worker, self._staleness()))
            case Way.SYNC:
                flow, update = sync_step(shape, costs), sync_update(shape, costs)
                for worker in workers:
                    self._repeat(partial(world.step, flow, worker))
                self._repeat(partial(world.step, update, workers[0]), self._stepped)

    def _repeat(
        self, begin: Callable[[], simpy.Event], then: Callable[[], None] = lambda: None
    ) -> None:
        """Begin something again and again, each time when it has ended."""

        def process() -> Process:
            while True:
                yield begin()
                then()

        self.world.env.process(process())

    def _staleness(self) -> Callable[[Mark], None]:
        """Counts the updates of a worker, and those of others since its last read."""
        read = 0

        def count(mark: Mark) -> None:
            nonlocal read
            if mark is Mark.READ:
                read = self.steps
            else:
                self.stale += self.steps - read
                self._stepped()

        return count

    def _stepped(self) -> None:
        self.steps += 1
        event = self._waiting.pop(self.steps, None)
        if event is not None:
            event.succeed()

    def run_until(self, steps: int) -> None:
        """Let time pass until this many global steps have been made."""
        if self.steps < steps:
            self._waiting[steps] = self.world.env.event()
            self.world.env.run(self._waiting[steps])

    def counts(self) -> dict[str, list[float]]:
        """All counts so far, by name; those of cores and links for each."""
        world, nodes = self.world, self.world.nodes
        return {
            "now": [world.now],
            "steps": [self.steps],
            "stale": [self.stale],
            "worker_cpu_s": [sum(task.cpu_s for task in world.workers)],
            "ps_cpu_s": [sum(task.cpu_s for task in world.servers)],
            "payload_bytes": [world.payload_bytes],
            "wire_bytes": [world.wire_bytes],
            "computing_s": [sum(task.computing_s for task in world.workers)],
            "cores_s": [node.cores.busy_s for node in nodes],
            "links_s": [
                *(node.link.out_busy_s for node in nodes),
                *(node.link.in_busy_s for node in nodes),
            ],
        }

    def forecast(self, before: dict[str, list[float]]) -> Forecast:
        """The figures of what was done since then."""
        shape = self.world.shape
        done = {
            name: max(new - old for old, new in zip(before[name], counts, strict=True))
            for name, counts in self.counts().items()
        }
        seconds, steps = done["now"], done["steps"]
        if seconds <= 0:
            raise ValueError("nothing in a step takes any time")
        return Forecast(
            shape=shape,
            steps_per_s=steps / seconds,
            worker_cpu_s=done["worker_cpu_s"] / steps,
            ps_cpu_s=done["ps_cpu_s"] / steps,
            payload_bytes=done["payload_bytes"] / steps,
            wire_bytes=done["wire_bytes"] / steps,
            computing=done["computing_s"] / shape.workers / seconds,
            cores_busy=min(1.0, done["cores_s"] / self.world.box.cores / seconds),
            link_busy=min(1.0, done["links_s"] / seconds),
            staleness=done["stale"] / steps if shape.way is Way.ASYNC else None,
        )
