"""Simulate a training: every worker repeats steps. The results are those of the steady state."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

import simpy

from lab.simulation.all_reduce import all_reduce
from lab.simulation.engine import Simulator
from lab.simulation.model import Box, Costs, Forecast, Shape, Way
from lab.simulation.programs import Mark, async_step, sync_step, sync_update

WARM_UP: Final = 3
"""The first rounds, which are not measured: queues fill, and workers get out of step. A round is
one step of each worker."""
MIN_ROUNDS: Final = 4
"""The least measured rounds. Only whole rounds are measured, because part of a round is not
representative while workers are in step."""
ENOUGH_STEPS: Final = 200
"""The default number of measured steps of all workers together."""
MANY_WORKERS: Final = 64
"""With more workers all rounds of a ring are alike, so one round is enough."""

Process = Generator[simpy.Event, Any, None]


def simulate(
    shape: Shape, costs: Costs, box: Box, *, seed: int = 0, steps: int = ENOUGH_STEPS
) -> Forecast:
    """Simulate a training, and measure its steady state.

    Args:
        shape: The training.
        costs: The costs of a step.
        box: The hardware.
        seed: The seed of all random numbers; equal seeds give equal results.
        steps: The measured steps of all workers together; few are enough without randomness.

    Returns:
        The results in the steady state, after the first steps.

    Raises:
        ValueError: A step takes no time: its costs are 0.
    """
    simulator = Simulator(shape, costs, box, seed)
    training = _Training(simulator)
    steps_of_round = shape.workers if shape.way is Way.ASYNC else 1
    warm_up, rounds = WARM_UP, max(MIN_ROUNDS, math.ceil(steps / shape.workers))
    if shape.way is Way.RING and shape.workers > MANY_WORKERS:
        warm_up, rounds = 0, 1
    training.run_until(warm_up * steps_of_round)
    before = training.counts()
    training.run_until((warm_up + rounds) * steps_of_round)
    return training.forecast(before)


class _Training:
    """The processes of a training.

    Args:
        simulator: The simulated tasks.

    Attributes:
        steps: Global steps so far.
        stale: The sum of the staleness of all updates so far.
    """

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.steps = self.stale = 0
        self._waiting: dict[int, simpy.Event] = {}
        shape, costs, workers = simulator.shape, simulator.costs, simulator.workers
        match shape.way:
            case Way.RING:
                self._repeat(partial(all_reduce, simulator), self._count_step)
            case Way.ASYNC:
                flow = async_step(shape, costs)
                for worker in workers:
                    self._repeat(partial(simulator.step, flow, worker, self._staleness()))
            case Way.SYNC:
                flow, update = sync_step(shape, costs), sync_update(shape, costs)
                for worker in workers:
                    self._repeat(partial(simulator.step, flow, worker))
                self._repeat(partial(simulator.step, update, workers[0]), self._count_step)

    def _repeat(
        self, begin: Callable[[], simpy.Event], then: Callable[[], None] = lambda: None
    ) -> None:
        """Repeat a step forever; each begins when the previous one has ended."""

        def process() -> Process:
            while True:
                yield begin()
                then()

        self.simulator.env.process(process())

    def _staleness(self) -> Callable[[Mark], None]:
        """Return a callback that counts a worker's updates and their staleness."""
        read = 0

        def count(mark: Mark) -> None:
            nonlocal read
            if mark is Mark.READ:
                read = self.steps
            else:
                self.stale += self.steps - read
                self._count_step()

        return count

    def _count_step(self) -> None:
        self.steps += 1
        event = self._waiting.pop(self.steps, None)
        if event is not None:
            event.succeed()

    def run_until(self, steps: int) -> None:
        """Run the simulation until this global step."""
        if self.steps < steps:
            self._waiting[steps] = self.simulator.env.event()
            self.simulator.env.run(self._waiting[steps])

    def counts(self) -> dict[str, list[float]]:
        """All counts so far, by name; for cores and links a count of each."""
        simulator, nodes = self.simulator, self.simulator.nodes
        return {
            "now": [simulator.now],
            "steps": [self.steps],
            "stale": [self.stale],
            "worker_cpu_s": [sum(task.cpu_s for task in simulator.workers)],
            "ps_cpu_s": [sum(task.cpu_s for task in simulator.servers)],
            "payload_bytes": [simulator.payload_bytes],
            "wire_bytes": [simulator.wire_bytes],
            "computing_s": [sum(task.computing_s for task in simulator.workers)],
            "cores_s": [node.cores.busy_s for node in nodes],
            "links_s": [
                *(node.link.out_busy_s for node in nodes),
                *(node.link.in_busy_s for node in nodes),
            ],
        }

    def forecast(self, before: dict[str, list[float]]) -> Forecast:
        """The results since `before`."""
        shape = self.simulator.shape
        done = {
            name: max(new - old for old, new in zip(before[name], counts, strict=True))
            for name, counts in self.counts().items()
        }
        seconds, steps = done["now"], done["steps"]
        if seconds <= 0:
            raise ValueError("a step takes no time: its costs are 0")
        on_device_s = done["computing_s"] if self.simulator.costs.device_s else 0.0
        busy_s = (done["worker_cpu_s"] + on_device_s) / shape.workers
        return Forecast(
            shape=shape,
            steps_per_s=steps / seconds,
            worker_cpu_s=done["worker_cpu_s"] / steps,
            ps_cpu_s=done["ps_cpu_s"] / steps,
            payload_bytes=done["payload_bytes"] / steps,
            wire_bytes=done["wire_bytes"] / steps,
            computing=done["computing_s"] / shape.workers / seconds,
            waiting=max(0.0, 1.0 - busy_s / seconds),
            cores_busy=min(1.0, done["cores_s"] / self.simulator.box.cores / seconds),
            link_busy=min(1.0, done["links_s"] / seconds),
            staleness=done["stale"] / steps if shape.way is Way.ASYNC else None,
        )
