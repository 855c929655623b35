"""Where a step's time goes: tasks on nodes, whose cores and links serve in order of arrival.

A task does one thing after another, in order of arrival, on whatever core is free then. A real task
has as many threads, but they hand its calls on to each other. On few cores this was closer to the
measurements than letting all of them work at once.

Cores and links compute when something will be done as soon as it arrives. For a queue in order of
arrival that is exact. It takes one event, where requesting, holding and releasing takes three. So
nothing may be requested ahead of its time.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import simpy

from lab.simulation.model import Box, Costs, Shape
from lab.simulation.programs import WORKER, Dataflow, Mark

SLICE_S: Final = 1e-4
"""Other work takes a core for this long at a time: short beside a step."""


class Cores:
    """The cores of one node.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self.busy_s = 0.0
        self._free_at = [0.0] * count

    def serve(self, now: float, seconds: float) -> float:
        """When work that comes now will be done.

        Args:
            now: Not before the last call's.
            seconds: Of one core.
        """
        self.busy_s += seconds
        return self.take(now, seconds)

    def take(self, now: float, seconds: float) -> float:
        """The same for work of other programs; it is not counted."""
        done = max(now, heapq.heappop(self._free_at)) + seconds
        heapq.heappush(self._free_at, done)
        return done


class Link:
    """A node's link to all others: a queue outward and a queue inward.

    Args:
        bandwidth: Bytes per second of either.
        latency_s: Seconds from the one end to the other.
    """

    def __init__(self, bandwidth: float, latency_s: float) -> None:
        self.bandwidth = bandwidth
        self.latency_s = latency_s
        self.out_busy_s = self.in_busy_s = 0.0
        self._out_free_at = self._in_free_at = 0.0

    def send(self, now: float, size: float) -> tuple[float, float]:
        """When the first and the last byte of a message come to the other end.

        Args:
            now: Not before the last message's.
            size: Bytes.
        """
        sending_s = size / self.bandwidth
        begin = max(now, self._out_free_at)
        self._out_free_at = begin + sending_s
        self.out_busy_s += sending_s
        return begin + self.latency_s, self._out_free_at + self.latency_s

    def receive(self, now: float, size: float, last_byte: float) -> float:
        """When a message will have been received whose first byte comes now.

        It flows through: its first bytes arrive while its last are being sent, so that alone it
        takes the latency and once its size by the bandwidth.

        Args:
            now: Not before the last message's.
            size: Bytes.
            last_byte: When the sender's last byte comes.
        """
        receiving_s = size / self.bandwidth
        self._in_free_at = max(max(now, self._in_free_at) + receiving_s, last_byte)
        self.in_busy_s += receiving_s
        return self._in_free_at


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


class World:
    """Everything that a training runs on.

    Args:
        shape: What is trained.
        costs: What a step costs.
        box: What it is trained on.
        seed: Of all that varies.

    Attributes:
        nodes: Those with tasks.
        workers: The workers.
        servers: The parameter servers.
        pools: Where operations put something, and others wait for it; by name.
        sent: Messages from task to task.
        received: Those of them that the receiver has handled.
        payload_bytes: Bytes of tensors in them.
        wire_bytes: The same with headers.
    """

    def __init__(self, shape: Shape, costs: Costs, box: Box, seed: int) -> None:
        self.shape, self.costs, self.box = shape, costs, box
        self.env = simpy.Environment()
        self.sent = self.received = 0
        self.payload_bytes = self.wire_bytes = 0.0
        self.pools: dict[Hashable, simpy.Container] = defaultdict(lambda: simpy.Container(self.env))
        places = box.places(shape)
        nodes = {
            place: Node(
                Cores(box.cores),
                Link(box.bandwidth, box.latency_s),
                coldness(costs.crowding, box.cores, places.count(place)),
            )
            for place in dict.fromkeys(places)
        }
        self.nodes = list(nodes.values())
        tasks = [Task(nodes[place]) for place in places]
        self.servers, self.workers = tasks[: shape.ps], tasks[shape.ps :]
        for worker, slowness in zip(self.workers, shape.slowness, strict=False):
            worker.slowness = slowness
        self._random = random.Random(seed)  # noqa: S311  (a simulation, no secret)
        if box.taken:
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
        """Send a message, and call something when the receiver has handled it.

        Args:
            source: The sender.
            target: The receiver.
            call: Is called when the receiver has handled it.
            size: Bytes of tensors in it.
            cpu_s: CPU seconds at each end, beside what the bytes cost.
            wait_s: Seconds from its arrival until a thread handles it.
            header: Bytes beside those.
        """
        cost_s = cpu_s + size * self.costs.byte_s
        self.sent += 1
        self.payload_bytes += size
        self.wire_bytes += size + header

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
            self.received += 1
            call()

        self.spend(source, cost_s, sent)

    def _hand_on(
        self, source: Task, target: Task, call: Callable[[], None], size: float, calls: float
    ) -> None:
        """Make remote calls, and call something when they have been handled; at once in a task."""
        if source is target:
            call()
            return
        self.send(
            source,
            target,
            call,
            size=size,
            cpu_s=calls * self.costs.call_s,
            wait_s=self.costs.wait_s,
            header=calls * self.costs.call_bytes,
        )

    def step(
        self, flow: Dataflow, worker: Task, on_mark: Callable[[Mark], None] = lambda _: None
    ) -> simpy.Event:
        """Let a worker begin a step; the event of its end.

        Args:
            flow: The operations of the step.
            worker: The worker.
            on_mark: Is called with each mark of an operation that is done.
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
                on_mark(operation.mark)
            if operation.gives is not None:
                self.pools[operation.gives[0]].put(operation.gives[1])
            if number == flow.last:
                made.succeed()
            for target, size, calls in operation.calls:
                ends = task_of(number), task_of(target)
                self._hand_on(*ends, partial(arrive, target), size, calls)

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
