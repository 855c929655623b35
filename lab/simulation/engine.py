"""Simulate the time of a step: tasks on nodes, whose cores and links are first-in first-out queues.

A task does one piece of work at a time, in order of arrival, on the core that is free first. A real
task has several threads, but they pass its calls to each other. With few cores this model was
closer to the measurements than threads that work at the same time.

Cores and links compute the end of work when it arrives. For a first-in first-out queue this is
exact. It needs one event, while request, hold and release need three. Therefore work must not be
requested before its time.
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
"""Other programs use a core for this long at a time: short compared with a step."""


class Cores:
    """The cores of one node.

    Args:
        count: The number of cores.
    """

    def __init__(self, count: int) -> None:
        self.busy_s = 0.0
        self._free_at = [0.0] * count

    def serve(self, now: float, seconds: float) -> float:
        """Return the time at which work that arrives now will be done.

        Args:
            now: The current time; it never decreases between calls.
            seconds: Seconds of one core.
        """
        self.busy_s += seconds
        return self.occupy(now, seconds)

    def occupy(self, now: float, seconds: float) -> float:
        """The same for work of other programs; it does not count as busy."""
        done = max(now, heapq.heappop(self._free_at)) + seconds
        heapq.heappush(self._free_at, done)
        return done


class Link:
    """A node's link to all others: a queue for sending and a queue for receiving.

    Args:
        bandwidth: Bytes per second of each queue.
        latency_s: Seconds from one end to the other.
    """

    def __init__(self, bandwidth: float, latency_s: float) -> None:
        self.bandwidth = bandwidth
        self.latency_s = latency_s
        self.out_busy_s = self.in_busy_s = 0.0
        self._out_free_at = self._in_free_at = 0.0

    def send(self, now: float, size: float) -> tuple[float, float]:
        """Return the times at which the first and last byte of a message reach the other end.

        Args:
            now: The current time; it never decreases between calls.
            size: Bytes.
        """
        sending_s = size / self.bandwidth
        begin = max(now, self._out_free_at)
        self._out_free_at = begin + sending_s
        self.out_busy_s += sending_s
        return begin + self.latency_s, self._out_free_at + self.latency_s

    def receive(self, now: float, size: float, last_byte: float) -> float:
        """Return the time at which a message is received whose first byte arrives now.

        Its first bytes arrive while its last bytes are being sent. On a free link a message
        therefore takes the latency, plus its size divided by the bandwidth once.

        Args:
            now: The current time; it never decreases between calls.
            size: Bytes.
            last_byte: The arrival time of the last byte.
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
        cold_factor: The factor on the time of all its work, because tasks share its cores.
    """

    cores: Cores
    link: Link
    cold_factor: float = 1.0


@dataclass(slots=True)
class Task:
    """A worker or a parameter server.

    Attributes:
        node: The node that it runs on.
        slowness: The factor on its time of computing.
        cpu_s: CPU seconds used so far.
        computing_s: Seconds in which it has computed gradients.
        work: The queue of its work, the current work first: CPU seconds, and a callback.
    """

    node: Node
    slowness: float = 1.0
    cpu_s: float = 0.0
    computing_s: float = 0.0
    work: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)


class Simulator:
    """The simulated hardware and tasks of a training.

    Args:
        shape: The training.
        costs: The costs of a step.
        box: The hardware.
        seed: The seed of all random numbers.

    Attributes:
        nodes: The nodes with tasks.
        workers: The workers.
        servers: The parameter servers.
        pools: Counters by name; operations add to them, and other operations wait for that.
        sent: The number of messages between tasks.
        received: The number of messages that the receiver has handled.
        payload_bytes: Bytes of tensors in the messages.
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
                cold_factor(costs.crowding, box.cores, places.count(place)),
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
                self._occupy(node.cores)

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return float(self.env.now)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call `call` after some seconds."""
        timeout = self.env.timeout(seconds)
        timeout.callbacks.append(lambda _: call())

    def _occupy(self, cores: Cores) -> None:
        """Let other programs occupy a core for a slice of time, repeatedly.

        The times between are exponential: equal times could synchronize with the training.
        """
        cores.occupy(self.now, SLICE_S)
        pause_s = self._random.expovariate(self.box.taken / SLICE_S)
        self.call_later(pause_s, lambda: self._occupy(cores))

    def spend(self, task: Task, cpu_s: float, call: Callable[[], None]) -> None:
        """Add work to a task's queue, and call `call` when it is done."""
        if cpu_s <= 0:
            call()
            return
        cpu_s *= task.node.cold_factor
        task.cpu_s += cpu_s
        task.work.append((cpu_s, call))
        if len(task.work) == 1:
            self._begin(task)

    def _begin(self, task: Task) -> None:
        """Begin the first work of a task's queue."""
        cpu_s, call = task.work[0]

        def done() -> None:
            task.work.popleft()
            if task.work:
                self._begin(task)
            call()

        self.call_later(task.node.cores.serve(self.now, cpu_s) - self.now, done)

    def compute(self, task: Task, call: Callable[[], None]) -> None:
        """Let a worker compute the gradients of a batch, on a core or on its accelerator."""
        stretched = task.slowness * factor(self._random, self.costs.spread)
        device_s = self.costs.device_s * stretched
        cpu_s = 0.0 if device_s else self.costs.image_s * self.shape.batch_size * stretched
        task.computing_s += device_s + cpu_s * task.node.cold_factor
        if device_s:
            self.call_later(device_s, call)
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
        """Send a message.

        Args:
            source: The sender.
            target: The receiver.
            call: Called when the receiver has handled the message.
            size: Bytes of tensors in it.
            cpu_s: CPU seconds at each end, in addition to the cost of the bytes.
            wait_s: Seconds from its arrival until a thread handles it.
            header: Bytes in addition to the tensors.
        """
        cost_s = cpu_s + size * self.costs.byte_s
        self.sent += 1
        self.payload_bytes += size
        self.wire_bytes += size + header

        def sent() -> None:
            if source.node is target.node:
                # Even without a delay this is an event, so that free calls do not recurse.
                self.call_later(wait_s, arrived)
                return
            first_byte, last_byte = source.node.link.send(self.now, size + header)
            self.call_later(first_byte - self.now, lambda: arrives(last_byte))

        def arrives(last_byte: float) -> None:
            received = target.node.link.receive(self.now, size + header, last_byte)
            self.call_later(received - self.now + wait_s, arrived)

        def arrived() -> None:
            self.spend(target, cost_s, handled)

        def handled() -> None:
            self.received += 1
            call()

        self.spend(source, cost_s, sent)

    def _deliver(
        self, source: Task, target: Task, call: Callable[[], None], size: float, calls: float
    ) -> None:
        """Make remote calls, and call `call` when they are handled; at once within a task."""
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
        """Begin a step of a worker, and return the event of its end.

        Args:
            flow: The operations of the step.
            worker: The worker.
            on_mark: Called with the mark of each completed operation that has one.
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
                self._deliver(*ends, partial(arrive, target), size, calls)

        def arrive(number: int) -> None:
            missing[number] -= 1
            if not missing[number]:
                begin(number)

        begin(flow.first)
        return made


def cold_factor(crowding: float, cores: int, tasks: int) -> float:
    """The factor on the time of work if tasks share cores.

    A core that another task used last has cold caches. With more tasks than cores, all equally
    busy, this has the probability 1 - cores / tasks.

    Args:
        crowding: The additional time of work on a cold core, as a share.
        cores: The cores of the node.
        tasks: The tasks on the node.
    """
    return 1.0 + crowding * max(0.0, 1.0 - cores / tasks)


def factor(source: random.Random, spread: float) -> float:
    """A random log-normal factor with mean 1 and standard deviation `spread`.

    A log-normal variable exp(N(m, s²)) has the mean exp(m + s²/2) and the variance (exp(s²) - 1)
    times the mean's square (N. L. Johnson et al., Continuous Univariate Distributions, chapter 14).
    """
    if not spread:
        return 1.0
    variance = math.log1p(spread**2)
    return math.exp(source.gauss(-variance / 2, math.sqrt(variance)))
