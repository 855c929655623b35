"""Simulate a training by discrete events: tasks, cores and links are queues of SimPy.

A step of a worker with parameter servers has these phases: its own work; a read from each server;
the gradients; a push to each server. A synchronous step then waits for the update of the chief,
which needs the gradients of all workers. A step without servers ends with an all-reduce in a ring
of n workers: 2(n - 1) phases, in each of which every worker sends 1/n of the parameters (P.
Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009).
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import simpy

from lab.simulation.model import Costs, Forecast, Host, Shape, Way

WARM_UP: Final = 5
"""The first rounds, which are not measured: queues fill, and workers get out of step. A round is
one step of each worker."""
MIN_ROUNDS: Final = 10
"""The least measured rounds."""
STEPS: Final = 2000
"""The default number of measured steps of all workers together."""

Process = Generator[simpy.Event, Any, None]


class Pool(simpy.Resource):
    """Equal servers with one queue: the cores of a host, or one direction of a link."""

    busy_s = 0.0

    def serve(self, seconds: float) -> Process:
        """Wait for a server, and use it for some seconds."""
        with self.request() as turn:
            yield turn
            yield self._env.timeout(seconds)
        self.busy_s += seconds


@dataclass(slots=True)
class Task:
    """A worker or a parameter server.

    Attributes:
        cores: The cores that it may use: as many pieces of its work run at once.
        out: The sending direction of its node's link.
        into: The receiving direction.
        share: The share of the time for which its program runs.
        cpu_s: CPU seconds so far.
    """

    cores: Pool
    out: Pool
    into: Pool
    share: float = 1.0
    cpu_s: float = 0.0


@dataclass(slots=True)
class Update:
    """The next synchronous update: the workers' gradients so far, and the event of its end."""

    done: simpy.Event
    gradients: int = 0


@dataclass
class Training:
    """A simulated training.

    Attributes:
        shape: The training.
        host: The hardware.
        costs: The costs of a step.
        ratios: Factors of service times, to draw from.
        chance: The source of all random numbers.
    """

    shape: Shape
    host: Host
    costs: Costs
    ratios: Sequence[float]
    chance: random.Random
    steps: int = 0
    stale: int = 0
    env: simpy.Environment = field(default_factory=simpy.Environment)

    def __post_init__(self) -> None:
        shape, host, env = self.shape, self.host, self.env
        count = shape.ps + shape.workers
        nodes = host.nodes or tuple(range(count))
        if len(nodes) != count:
            raise ValueError(f"{len(nodes)} nodes are given for {count} tasks")
        links = {node: (Pool(env), Pool(env)) for node in nodes}
        own = {node: Pool(env, host.cores) for node in nodes}
        # A plan of `lab` pins each task to its own cores if there are enough of them.
        part, left = divmod(host.cores, count)
        common = Pool(env, host.cores)
        tasks = []
        for number, node in enumerate(nodes):
            pinned = Pool(env, part + (number < left)) if part else common
            tasks.append(Task(own[node] if host.separate else pinned, *links[node]))
        self.servers, self.workers = tasks[: shape.ps], tasks[shape.ps :]
        for worker, share in zip(self.workers, shape.shares, strict=False):
            worker.share = share
        self.pools = list(dict.fromkeys(task.cores for task in tasks))
        self.links = [pool for pair in links.values() for pool in pair]
        self.held = shape.held()
        self.update = Update(env.event())
        self._wanted: tuple[int, simpy.Event] = (0, env.event())
        if shape.way is Way.RING:
            env.process(self._ring())
        for worker in self.workers if shape.ps else ():
            env.process(self._repeat(worker))

    def _time(self, seconds: float) -> float:
        return seconds * self.chance.choice(self.ratios) if self.ratios else seconds

    def _work(self, task: Task, cpu_s: float) -> Process:
        """Let a task work on one of its cores."""
        seconds = self._time(cpu_s)
        task.cpu_s += seconds
        yield from task.cores.serve(seconds)
        if task.share < 1:  # it was suspended for the other share of the time
            yield self.env.timeout(seconds * (1 / task.share - 1))

    def _send(self, source: Task, target: Task, size: float) -> Process:
        """Send a message from one node to another."""
        if source.out is target.out:
            return
        seconds = size / self.host.bandwidth
        if seconds:  # a message leaves one link and enters the other at the same time
            with source.out.request() as turn:
                yield turn
                yield from target.into.serve(seconds)
            source.out.busy_s += seconds
        if self.host.latency_s:
            yield self.env.timeout(self.host.latency_s)

    def _call(self, worker: Task, server: Task, parts: float, up: float, down: float) -> Process:
        """Make a call to a server: a part of the worker's and of the server's work for a step."""
        after = self.costs.after
        call_s, serve_s = parts * self.costs.call_s, parts * self.costs.serve_s
        yield from self._work(worker, call_s * (1 - after))
        yield from self._send(worker, server, up)
        yield from self._work(server, serve_s * (1 - after))
        yield from self._send(server, worker, down)
        if after:
            self.env.process(self._work(worker, call_s * after))
            self.env.process(self._work(server, serve_s * after))

    def _all(self, parts: Iterable[Process]) -> Process:
        """Run processes at the same time, until all have ended."""
        several = list(parts)
        if len(several) == 1:
            yield from several[0]
        else:
            yield self.env.all_of([self.env.process(each) for each in several])

    def _compute(self, worker: Task, own_s: float) -> Process:
        """Let a worker prepare a batch and compute its gradients."""
        device_s = self.host.device_s
        yield from self._work(worker, own_s + self.shape.batch_size * self.costs.image_s)
        if device_s:
            yield self.env.timeout(self._time(device_s) / worker.share)

    def _repeat(self, worker: Task) -> Process:
        """Make the steps of a worker with parameter servers."""
        while True:
            yield from self._work(worker, self.costs.worker_s)
            began = self.steps
            pairs = list(zip(self.servers, self.held, strict=True))
            yield from self._all(self._call(worker, each, 0.5, 0, size) for each, size in pairs)
            yield from self._compute(worker, 0.0)
            yield from self._all(self._call(worker, each, 0.5, size, 0) for each, size in pairs)
            if self.shape.way is Way.ASYNC:
                self.stale += self.steps - began
                self._count()
                continue
            update = self.update
            update.gradients += 1
            if update.gradients == self.shape.workers:
                self.update = Update(self.env.event())
                self.env.process(self._apply(update))
            yield update.done

    def _apply(self, update: Update) -> Process:
        """Let the chief apply the gradients of all workers, then let them begin the next step."""
        chief = self.workers[0]
        yield from self._all(
            self._call(chief, each, self.costs.update, 0, 0) for each in self.servers
        )
        self._count()
        update.done.succeed()

    def _ring(self) -> Process:
        """Make the steps of all workers without parameter servers."""
        costs, count = self.costs, self.shape.workers
        phases, size = 2 * (count - 1), sum(self.shape.variables) / count
        # Where workers share cores, a phase takes as long as the work of all of them.
        each = 1.0 if self.host.separate else max(1.0, count / self.host.cores)
        slowest = min(worker.share for worker in self.workers)
        work_s = (costs.reduce_s + phases * costs.hop_s) if phases else 0.0
        send_s = size / self.host.bandwidth + self.host.latency_s
        apart = len({id(worker.out) for worker in self.workers}) > 1
        while True:
            yield from self._all(self._compute(each, costs.ring_s) for each in self.workers)
            seconds = self._time(work_s)
            for worker in self.workers:
                worker.cpu_s += seconds
                worker.cores.busy_s += seconds
                worker.out.busy_s += phases * size / self.host.bandwidth
            wait_s = phases * (costs.hop_wait_s + (send_s if apart else 0.0))
            yield self.env.timeout(seconds * each / slowest + wait_s)
            self._count()

    def _count(self) -> None:
        self.steps += 1
        if self.steps == self._wanted[0]:
            self._wanted[1].succeed()

    def run_until(self, steps: int) -> dict[str, float]:
        """Run the simulation until this global step; return all counts so far."""
        self._wanted = (steps, self.env.event())
        self.env.run(self._wanted[1])
        counts = {f"cores{index}": pool.busy_s for index, pool in enumerate(self.pools)}
        counts |= {f"link{index}": pool.busy_s for index, pool in enumerate(self.links)}
        counts["worker_cpu_s"] = sum(task.cpu_s for task in self.workers)
        counts["ps_cpu_s"] = sum(task.cpu_s for task in self.servers)
        return counts | {"now": self.env.now, "stale": self.stale}


def simulate(
    shape: Shape,
    costs: Costs,
    host: Host,
    ratios: Sequence[float] = (),
    *,
    seed: int = 0,
    steps: int = STEPS,
) -> Forecast:
    """Simulate a training, and measure its steady state.

    Args:
        shape: The training.
        costs: The costs of a step.
        host: The hardware.
        ratios: Factors of service times, of which each one is drawn; empty: no spread.
        seed: The seed of all random numbers; equal seeds give equal results.
        steps: The measured steps of all workers together: with more, other seeds change the
            result less.

    Returns:
        The results in the steady state, after the first steps.

    Raises:
        ValueError: A step takes no time: its costs are 0; or `host` has other tasks.
    """
    if max(costs.worker_s, costs.call_s, costs.serve_s, costs.image_s, costs.ring_s) <= 0:
        raise ValueError("a step takes no time: its costs are 0")
    training = Training(shape, host, costs, ratios, random.Random(seed))  # noqa: S311  (no secret)
    each = shape.workers if shape.way is Way.ASYNC else 1
    rounds = max(MIN_ROUNDS, math.ceil(steps / shape.workers))
    before = training.run_until(WARM_UP * each)
    counts = training.run_until((WARM_UP + rounds) * each)
    done = {name: value - before[name] for name, value in counts.items()}
    global_steps, seconds = rounds * each, done["now"]

    def busiest(pools: Sequence[Pool], among: Sequence[Pool], name: str) -> float:
        shares = [
            done[f"{name}{index}"] / pool.capacity / seconds
            for index, pool in enumerate(pools)
            if pool in among
        ]
        return min(1.0, max(shares, default=0.0))

    serving = [server.cores for server in training.servers]
    return Forecast(
        shape=shape,
        steps_per_s=global_steps / seconds,
        staleness=done["stale"] / global_steps if shape.way is Way.ASYNC else None,
        worker_cpu_s=done["worker_cpu_s"] / global_steps,
        ps_cpu_s=done["ps_cpu_s"] / global_steps,
        busy={
            "cores": busiest(training.pools, training.pools, "cores"),
            "ps": busiest(training.pools, serving, "cores"),
            "link": busiest(training.links, training.links, "link"),
        },
    )
