"""The model: a training, the costs of a step, and a simulation of its steps by discrete events.

The cores of the host are queues of SimPy. A step of a worker with parameter servers has these
phases: its own work; a read from each server; the gradients; a push to each server. A synchronous
step then waits for the update of the chief, which needs the gradients of all workers. A step
without servers ends with an all-reduce in a ring of n workers: 2(n - 1) phases (P. Patarasuk and
X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import simpy

WARM_UP: Final = 5
"""The first rounds, which are not measured: queues fill, and workers get out of step. A round is
one step of each worker."""
STEPS: Final = 2000
"""The measured steps of all workers together."""

Process = Generator[simpy.Event, Any, None]


class Way(StrEnum):
    """How the workers share parameters."""

    ASYNC = "async"
    """Parameter servers; each worker updates without waiting for others (`mnist_async.py`)."""
    SYNC = "sync"
    """Parameter servers; each update uses the gradients of all workers (`mnist_sync.py`)."""
    RING = "multiworker"
    """No parameter servers; an all-reduce in a ring of the workers (`all_reduce.py`)."""


class Shape(NamedTuple):
    """The training, and its numbers of tasks.

    Attributes:
        way: How the workers share parameters.
        workers: The number of workers, at least 1.
        ps: The number of parameter servers, at least 1; 0 with `Way.RING`.
        batch_size: Images in a worker's batch.
    """

    way: Way
    workers: int
    ps: int
    batch_size: int = 100


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a step, in seconds of one core unless stated otherwise.

    Attributes:
        worker_s: A worker's own work in a step with parameter servers, without images.
        call_s: A worker's additional work for each parameter server.
        serve_s: A parameter server's work for a step of one worker.
        after: The share of `call_s` and `serve_s` that is done after the answer.
        update: The chief's update of a synchronous step, for each server, in `call_s` and
            `serve_s`: 1 costs as much as a step of one more worker.
        ring_s: A worker's own work in a step without parameter servers, without images.
        reduce_s: A worker's work to begin and end an all-reduce.
        hop_s: A worker's work for each of the 2(n - 1) phases of an all-reduce.
        hop_wait_s: Wall seconds of a phase in which no core works.
        image_s: An image of a batch.
    """

    worker_s: float = 0.0
    call_s: float = 0.0
    serve_s: float = 0.0
    after: float = 0.0
    update: float = 1.0
    ring_s: float = 0.0
    reduce_s: float = 0.0
    hop_s: float = 0.0
    hop_wait_s: float = 0.0
    image_s: float = 0.0

    def scaled(self, factor: float) -> Costs:
        """Return the costs of a machine on which all work takes `factor` times as long."""
        return Costs(
            **{name: v * factor if name.endswith("_s") else v for name, v in asdict(self).items()}
        )


class Forecast(NamedTuple):
    """The results of a simulated training in its steady state.

    Attributes:
        steps_per_s: Global steps per second.
        worker_cpu_s: CPU seconds of all workers per global step.
        ps_cpu_s: CPU seconds of all parameter servers per global step.
    """

    steps_per_s: float
    worker_cpu_s: float
    ps_cpu_s: float


@dataclass(slots=True)
class Task:
    """A worker or a parameter server: the cores that it may use, and its CPU seconds so far."""

    cores: simpy.Resource
    cpu_s: float = 0.0


class Training:
    """A simulated training.

    Args:
        shape: The training.
        costs: The costs of a step.
        cores: The CPU cores of the host.
        draw: Returns a factor of a service time.
    """

    def __init__(self, shape: Shape, costs: Costs, cores: int, draw: Callable[[], float]) -> None:
        self.shape, self.costs, self.cores, self._draw = shape, costs, cores, draw
        self.env = simpy.Environment()
        self.steps = 0
        # A plan of `lab` pins each task to its own cores if there are enough of them.
        count = shape.ps + shape.workers
        part, left = divmod(cores, count)
        common = simpy.Resource(self.env, cores)
        tasks = [
            Task(simpy.Resource(self.env, part + (number < left)) if part else common)
            for number in range(count)
        ]
        self.servers, self.workers = tasks[: shape.ps], tasks[shape.ps :]
        is_async = shape.way is Way.ASYNC
        for process in map(self._repeat, self.workers) if is_async else [self._rounds()]:
            self.env.process(process)

    def _work(self, task: Task, seconds: float) -> Process:
        """Wait for one of the task's cores, and use it."""
        drawn_s = seconds * self._draw()
        task.cpu_s += drawn_s
        with task.cores.request() as turn:
            yield turn
            yield self.env.timeout(drawn_s)

    def _call(self, worker: Task, server: Task, parts: float) -> Process:
        """Make a call to a server: a part of the worker's and of the server's work for a step."""
        costs = self.costs
        work = ((worker, parts * costs.call_s), (server, parts * costs.serve_s))
        for task, seconds in work:
            yield from self._work(task, seconds * (1 - costs.after))
        for task, seconds in work if costs.after else ():
            self.env.process(self._work(task, seconds * costs.after))

    def _all(self, parts: Iterable[Process]) -> Process:
        """Run processes at the same time, until all have ended."""
        yield self.env.all_of([self.env.process(part) for part in parts])

    def _step(self, worker: Task) -> Process:
        """Compute a gradient, and push it to the servers."""
        costs = self.costs
        yield from self._work(worker, costs.worker_s if self.servers else costs.ring_s)
        yield from self._all(self._call(worker, server, 0.5) for server in self.servers)
        yield from self._work(worker, self.shape.batch_size * costs.image_s)
        yield from self._all(self._call(worker, server, 0.5) for server in self.servers)

    def _repeat(self, worker: Task) -> Process:
        """Make the steps of an asynchronous worker."""
        while True:
            yield from self._step(worker)
            self.steps += 1

    def _rounds(self) -> Process:
        """Make the steps of all workers, which wait for each other."""
        chief, update = self.workers[0], self.costs.update
        while True:
            yield from self._all(self._step(worker) for worker in self.workers)
            yield from self._all(self._call(chief, server, update) for server in self.servers)
            if not self.servers:
                yield from self._all_reduce()
            self.steps += 1

    def _all_reduce(self) -> Process:
        costs, count = self.costs, self.shape.workers
        phases = 2 * (count - 1)
        work_s = (costs.reduce_s + phases * costs.hop_s) * self._draw() if phases else 0.0
        for worker in self.workers:
            worker.cpu_s += work_s
        # Where workers share cores, a phase takes as long as the work of all of them.
        crowd = max(1.0, count / self.cores)
        yield self.env.timeout(work_s * crowd + phases * costs.hop_wait_s)

    def run_until(self, steps: int) -> tuple[float, ...]:
        """Run until this global step; return the time and both jobs' CPU times."""
        while self.steps < steps:
            self.env.step()
        jobs = (sum(task.cpu_s for task in tasks) for tasks in (self.workers, self.servers))
        return (self.env.now, *jobs)


def simulate(
    shape: Shape,
    costs: Costs,
    cores: int,
    ratios: Sequence[float] = (1.0,),
    *,
    seed: int = 0,
    steps: int = STEPS,
) -> Forecast:
    """Simulate a training, and measure its steady state.

    Args:
        shape: The training.
        costs: The costs of a step.
        cores: The CPU cores of the host.
        ratios: Factors of service times, of which each one is drawn.
        seed: The seed of all random numbers; equal seeds give equal results.
        steps: The measured steps of all workers together: with more, other seeds change the
            result less.
    """
    chance = random.Random(seed)  # noqa: S311  (no secret)
    training = Training(shape, costs, cores, lambda: chance.choice(ratios))
    round_steps = shape.workers if shape.way is Way.ASYNC else 1
    before = training.run_until(WARM_UP * round_steps)
    count = math.ceil(steps / shape.workers) * round_steps
    after = training.run_until(WARM_UP * round_steps + count)
    seconds, worker_s, ps_s = (new - old for old, new in zip(before, after, strict=True))
    return Forecast(count / seconds, worker_s / count, ps_s / count)
