"""Where a step's time goes: tasks on nodes, whose cores and links serve in order of arrival.

A task does one thing after another, in the order in which they come to it, on whatever core is free
then: so many threads as a real one has, they hand its calls on to each other, and on few cores this
was nearer to what was measured than to let all of them work at once.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

import simpy

from lab.simulation.costs import Costs
from lab.simulation.dataflow import WORKER, Dataflow, Mark
from lab.simulation.model import Box, Shape
from lab.simulation.resources import Cores, Link

SLICE_S: Final = 1e-4
"""Other work takes a core for so long at a time: short beside a step, so that it hardly matters."""


@dataclass(slots=True)
class Node:
    """A machine.

    Attributes:
        cores: Its cores.
        link: Its link to the others.
        coldness: How many times as long all work takes on it because tasks share its cores.
    """

    cores: Cores
    link: Link
    coldness: float = 1.0


@dataclass(slots=True)
class Task:
    """A worker or a parameter server.

    Attributes:
        node: Where it runs.
        slowness: How many times as long as usual it computes.
        cpu_s: What it has spent so far.
        computing_s: Seconds that it has computed gradients for.
        work: What it has begun and what it will do after that: CPU seconds, and what follows.
    """

    node: Node
    slowness: float = 1.0
    cpu_s: float = 0.0
    computing_s: float = 0.0
    work: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)


@dataclass(slots=True)
class Carried:
    """What has gone from task to task.

    Attributes:
        sent: Messages.
        received: Those of them that have been taken up.
        payload_bytes: Bytes of tensors.
        wire_bytes: The same with headers.
    """

    sent: int = 0
    received: int = 0
    payload_bytes: float = 0.0
    wire_bytes: float = 0.0


@dataclass(slots=True)
class World:
    """Everything that time passes for.

    Args:
        shape: How many tasks.
        costs: What they spend.
        box: What they run on.
        seed: Of the times of computing, where they vary, and of other work's.
    """

    shape: Shape
    costs: Costs
    box: Box
    seed: int
    env: simpy.Environment = field(default_factory=simpy.Environment)
    carried: Carried = field(default_factory=Carried)

    nodes: list[Node] = field(init=False)
    workers: list[Task] = field(init=False)
    servers: list[Task] = field(init=False)
    pools: dict[Hashable, simpy.Container] = field(init=False)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        places = self.box.places(self.shape)
        nodes = {
            place: Node(
                Cores(self.box.cores),
                Link(self.box.bandwidth, self.box.latency_s),
                coldness(self.costs.crowding, self.box.cores, places.count(place)),
            )
            for place in dict.fromkeys(places)
        }
        self.nodes = list(nodes.values())
        tasks = [Task(nodes[place]) for place in places]
        self.servers, self.workers = tasks[: self.shape.ps], tasks[self.shape.ps :]
        for worker, slowness in zip(self.workers, self.shape.slowness, strict=False):
            worker.slowness = slowness
        self.pools = defaultdict(lambda: simpy.Container(self.env))
        self._random = random.Random(self.seed)  # noqa: S311  (a simulation, no secret)
        if self.box.taken:
            for node in self.nodes:
                self._take(node.cores)

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return float(self.env.now)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call something when so many seconds have passed."""
        timeout = self.env.timeout(seconds)
        timeout.callbacks.append(lambda _: call())

    def _take(self, cores: Cores) -> None:
        """Let other work have a core for a slice of time, again and again.

        The times between are exponential: equal ones could fall into step with the training.
        """
        cores.take(self.now, SLICE_S)
        pause_s = self._random.expovariate(self.box.taken / SLICE_S)
        self.later(pause_s, lambda: self._take(cores))

    def spend(self, task: Task, cpu_s: float, call: Callable[[], None]) -> None:
        """Let a task work when it has done what came before, and call something when it has."""
        if cpu_s <= 0:
            call()
            return
        cpu_s *= task.node.coldness
        task.cpu_s += cpu_s
        task.work.append((cpu_s, call))
        if len(task.work) == 1:
            self._begin(task)

    def _begin(self, task: Task) -> None:
        """Let a task begin with what it has to do next."""
        cpu_s, call = task.work[0]

        def done() -> None:
            task.work.popleft()
            if task.work:
                self._begin(task)
            call()

        self.later(task.node.cores.serve(self.now, cpu_s) - self.now, done)

    def compute(self, task: Task, call: Callable[[], None]) -> None:
        """Let a worker compute the gradients of a batch, on its cores or its accelerator."""
        stretched = task.slowness * factor(self._random, self.costs.spread)
        device_s = self.costs.device_s * stretched
        cpu_s = 0.0 if device_s else self.costs.image_s * self.shape.batch_size * stretched
        task.computing_s += device_s + cpu_s * task.node.coldness
        if device_s:
            self.later(device_s, call)
        else:
            self.spend(task, cpu_s, call)

    def send(
        self,
        source: Task,
        target: Task,
        call: Callable[[], None],
        *,
        size: float,
        cpu_s: float,
        wait_s: float,
        header: float,
    ) -> None:
        """Send a message, and call something when the receiver has taken it up.

        Args:
            source: Who sends it.
            target: Who gets it.
            call: Is called when it has been taken up.
            size: Bytes that it carries.
            cpu_s: CPU seconds at each end, beside what the bytes cost.
            wait_s: Seconds until it is taken up.
            header: Bytes beside those.
        """
        cost_s = cpu_s + size * self.costs.byte_s
        self.carried.sent += 1
        self.carried.payload_bytes += size
        self.carried.wire_bytes += size + header

        def sent() -> None:
            if source.node is target.node:
                # Also where that is at once: a chain of calls that cost nothing is no recursion.
                self.later(wait_s, arrived)
                return
            first_byte, last_byte = source.node.link.send(self.now, size + header)
            self.later(first_byte - self.now, lambda: arrives(last_byte))

        def arrives(last_byte: float) -> None:
            received = target.node.link.receive(self.now, size + header, last_byte)
            self.later(received - self.now + wait_s, arrived)

        def arrived() -> None:
            self.spend(target, cost_s, taken)

        def taken() -> None:
            self.carried.received += 1
            call()

        self.spend(source, cost_s, sent)

    def step(
        self, flow: Dataflow, worker: Task, tell: Callable[[Mark], None] = lambda _: None
    ) -> simpy.Event:
        """Let a worker begin a step; the event that it has been made.

        Args:
            flow: What it consists of.
            worker: Who makes it.
            tell: Hears of the marks in it.
        """
        made = self.env.event()
        missing = [operation.needs for operation in flow.operations]

        def task_of(number: int) -> Task:
            index = flow.operations[number].task
            return worker if index == WORKER else self.servers[index]

        def begin(number: int) -> None:
            takes = flow.operations[number].takes
            if takes is None:
                work(number)
                return
            got = self.pools[takes[0]].get(takes[1])
            got.callbacks.append(lambda _: work(number))

        def work(number: int) -> None:
            if flow.operations[number].computes:
                self.compute(worker, lambda: end(number))
            else:
                self.spend(task_of(number), flow.operations[number].cpu_s, lambda: end(number))

        def end(number: int) -> None:
            operation = flow.operations[number]
            if operation.mark is not None:
                tell(operation.mark)
            if operation.gives is not None:
                self.pools[operation.gives[0]].put(operation.gives[1])
            if number == flow.last:
                made.succeed()
            for target, size, calls in operation.calls:
                hand(number, target, size, calls)

        def hand(number: int, target: int, size: float, calls: float) -> None:
            source, receiver = task_of(number), task_of(target)
            if source is receiver:
                arrive(target)
                return
            self.send(
                source,
                receiver,
                lambda: arrive(target),
                size=size,
                cpu_s=calls * self.costs.call_s,
                wait_s=self.costs.wait_s,
                header=calls * self.costs.call_bytes,
            )

        def arrive(number: int) -> None:
            missing[number] -= 1
            if not missing[number]:
                begin(number)

        begin(flow.first)
        return made


def coldness(crowding: float, cores: int, tasks: int) -> float:
    """How many times as long work takes where tasks share cores.

    A task that gets a core on which another one was last finds the caches cold. With more tasks
    than cores, all equally busy, that is so with probability 1 - cores / tasks.

    Args:
        crowding: How much longer work takes on a cold core, as a share.
        cores: Of the node.
        tasks: On the node.
    """
    return 1.0 + crowding * max(0.0, 1.0 - cores / tasks)


def factor(source: random.Random, spread: float) -> float:
    """A factor whose mean is 1 and whose standard deviation is `spread`; log-normal.

    A log-normal variable exp(N(m, s²)) has the mean exp(m + s²/2) and the variance (exp(s²) - 1)
    times the mean's square (N. L. Johnson et al., Continuous Univariate Distributions, chapter 14).
    """
    if not spread:
        return 1.0
    variance = math.log1p(spread**2)
    return math.exp(source.gauss(-variance / 2, math.sqrt(variance)))
