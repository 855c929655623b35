"""A training: every worker goes from step to step; its figures once all of them are at it."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Final

import simpy

from lab.simulation.costs import Costs
from lab.simulation.dataflow import Dataflow, Mark
from lab.simulation.model import Box, Forecast, Shape, Way
from lab.simulation.programs import async_step, sync_step, sync_update
from lab.simulation.ring import all_reduce
from lab.simulation.world import Task, World

WARM_UP: Final = 3
"""Rounds, one step of each worker, that do not count: queues fill, and workers fall out of step."""
LEAST: Final = 4
"""Rounds that count at least. Whole ones: where the workers march in step, part of a round counts
for more or less than it takes."""
ENOUGH: Final = 200
"""Steps of all workers together that are enough."""
MANY: Final = 64
"""With more workers a round of a ring is like the next: one of them is enough."""

Process = Generator[simpy.Event, Any, None]


def simulate(
    shape: Shape, costs: Costs, box: Box, *, seed: int = 0, steps: int = ENOUGH
) -> Forecast:
    """Simulate a training until its figures stand.

    Args:
        shape: What is trained, and by how many.
        costs: What a step costs.
        box: What it is trained on.
        seed: Of what varies; the same gives the same.
        steps: Steps of all workers together that are enough; where nothing varies few are.

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
    training.begin()
    training.run_until(warm_up * steps_of_round)
    before = training.state()
    training.run_until((warm_up + rounds) * steps_of_round)
    return training.forecast(before, training.state())


@dataclass(frozen=True, slots=True)
class _State:
    """All counts at one moment."""

    now: float
    steps: int
    worker_cpu_s: float
    ps_cpu_s: float
    payload_bytes: float
    wire_bytes: float
    computing_s: float
    cores_s: tuple[float, ...]
    links_s: tuple[float, ...]
    stale: int


@dataclass(slots=True)
class _Training:
    world: World
    steps: int = 0
    stale: int = 0
    _waiting: dict[int, simpy.Event] = field(default_factory=dict)

    def begin(self) -> None:
        world = self.world
        match world.shape.way:
            case Way.RING:
                world.env.process(self._rounds())
            case Way.ASYNC:
                flow = async_step(world.shape, world.costs)
                for worker in world.workers:
                    world.env.process(self._updates_at_once(flow, worker))
            case Way.SYNC:
                flow = sync_step(world.shape, world.costs)
                for worker in world.workers:
                    world.env.process(self._hands_in(flow, worker))
                world.env.process(self._updates(sync_update(world.shape, world.costs)))

    def run_until(self, steps: int) -> None:
        """Let time pass until so many global steps have been made."""
        if self.steps < steps:
            self._waiting[steps] = self.world.env.event()
            self.world.env.run(self._waiting[steps])

    def _stepped(self) -> None:
        self.steps += 1
        event = self._waiting.pop(self.steps, None)
        if event is not None:
            event.succeed()

    def _rounds(self) -> Process:
        while True:
            yield all_reduce(self.world)
            self._stepped()

    def _updates_at_once(self, flow: Dataflow, worker: Task) -> Process:
        read = 0

        def tell(mark: Mark) -> None:
            nonlocal read
            if mark is Mark.READ:
                read = self.steps
            else:
                self.stale += self.steps - read
                self._stepped()

        while True:
            yield self.world.step(flow, worker, tell)

    def _hands_in(self, flow: Dataflow, worker: Task) -> Process:
        while True:
            yield self.world.step(flow, worker)

    def _updates(self, flow: Dataflow) -> Process:
        chief = self.world.workers[0]
        while True:
            yield self.world.step(flow, chief)
            self._stepped()

    def state(self) -> _State:
        world = self.world
        return _State(
            now=world.now,
            steps=self.steps,
            worker_cpu_s=sum(task.cpu_s for task in world.workers),
            ps_cpu_s=sum(task.cpu_s for task in world.servers),
            payload_bytes=world.carried.payload_bytes,
            wire_bytes=world.carried.wire_bytes,
            computing_s=sum(task.computing_s for task in world.workers),
            cores_s=tuple(node.cores.busy_s for node in world.nodes),
            links_s=tuple(
                busy_s
                for node in world.nodes
                for busy_s in (node.link.out_busy_s, node.link.in_busy_s)
            ),
            stale=self.stale,
        )

    def forecast(self, before: _State, after: _State) -> Forecast:
        """What was done between two moments."""
        shape = self.world.shape
        seconds, steps = after.now - before.now, after.steps - before.steps
        if seconds <= 0:
            raise ValueError("nothing in a step takes any time")
        cores_s, links_s = (
            max(new - old for old, new in zip(olds, news, strict=True))
            for olds, news in ((before.cores_s, after.cores_s), (before.links_s, after.links_s))
        )
        return Forecast(
            shape=shape,
            steps_per_s=steps / seconds,
            worker_cpu_s=(after.worker_cpu_s - before.worker_cpu_s) / steps,
            ps_cpu_s=(after.ps_cpu_s - before.ps_cpu_s) / steps,
            payload_bytes=(after.payload_bytes - before.payload_bytes) / steps,
            wire_bytes=(after.wire_bytes - before.wire_bytes) / steps,
            computing=(after.computing_s - before.computing_s) / shape.workers / seconds,
            cores_busy=min(1.0, cores_s / self.world.box.cores / seconds),
            link_busy=min(1.0, links_s / seconds),
            staleness=(after.stale - before.stale) / steps if shape.way is Way.ASYNC else None,
        )
