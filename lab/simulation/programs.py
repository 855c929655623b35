"""The steps of the training programs: operations on tasks, and the calls between them.

TensorFlow splits a graph at each edge between two tasks. Each such edge becomes a remote call
(`RecvTensor`), also an edge that carries no data and only sets the order. This module has the edges
of `mnist_async.py` and `mnist_sync.py` with 1, 2 and 4 parameter servers. They were read from the
partition graphs of a session (`RunOptions.output_partition_graphs`): 11, 17 and 22 of an
asynchronous step, 13, 19 and 31 of a synchronous step, and 3, 8 and 19 of a synchronous update. In
addition each parameter server is asked to run its part (`RunGraph`) and to forget it afterwards
(`CleanupGraph`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from lab.simulation.model import Costs, Shape

Amount = tuple[Hashable, int]
"""The name of a pool, and an amount."""

WORKER: Final = -1
"""The number of the task that makes the step; parameter servers are numbered from 0."""


class Mark(Enum):
    """The event that an operation reports when it is done."""

    READ = auto()
    """The global step was read."""
    COUNT = auto()
    """The global step was increased by one."""


@dataclass(slots=True)
class Operation:
    """An operation of a task; it begins when all its inputs have arrived.

    Attributes:
        task: `WORKER`, or the index of a parameter server.
        cpu_s: CPU seconds.
        computes: Whether it computes the gradients of a batch; the worker then sets its time.
        mark: The event that it reports.
        takes: The amount that it takes from a pool before it begins.
        gives: The amount that it adds to a pool when it is done.
        calls: The operations that wait for it: (operation, bytes, calls).
        needs: The number of operations that it waits for.
    """

    task: int
    cpu_s: float = 0.0
    computes: bool = False
    mark: Mark | None = None
    takes: Amount | None = None
    gives: Amount | None = None
    calls: list[tuple[int, float, float]] = field(default_factory=list)
    needs: int = 0


class Dataflow:
    """The operations of a step.

    Attributes:
        operations: All operations, by number.
        first: The first operation.
        last: The operation that ends the step; others may clean up afterwards.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.first = self.last = 0

    def add(self, operation: Operation) -> int:
        """Add an operation, and return its number."""
        self.operations.append(operation)
        return len(self.operations) - 1

    def connect(self, source: int, target: int, size: float = 0.0, calls: float = 1.0) -> None:
        """Let one operation wait for another.

        Args:
            source: The operation that `target` waits for.
            target: The operation that waits.
            size: Bytes sent from `source` to `target`.
            calls: The number of remote calls if they are on two tasks: 1 for a tensor, 0.5 for only
                a request or only an answer.
        """
        self.operations[source].calls.append((target, size, calls))
        self.operations[target].needs += 1


STEP_BYTES: Final = 8  # global_step, its copies and the tokens: int64
RATE_BYTES: Final = 4  # the learning rate, the probe and its gradient: float32
TOKENS: Final = "tokens"


@dataclass(frozen=True, slots=True)
class Allocation:
    """The variables of each parameter server.

    Attributes:
        held: For each server, the bytes of each parameter that it holds.
        counter: The server that holds the global step.
        probe: The server that holds the probe.
    """

    held: tuple[tuple[int, ...], ...]
    counter: int
    probe: int

    @property
    def readers(self) -> list[int]:
        """The servers with parameters."""
        return [server for server, sizes in enumerate(self.held) if sizes]

    @property
    def holders(self) -> list[int]:
        """The servers with a variable that gradients update."""
        return sorted({*self.readers, self.probe})


def allocate(shape: Shape) -> Allocation:
    """Allocate the variables to the servers as `tf.train.replica_device_setter` does: round robin.

    The programs create the parameters, then the global step, then the probe.
    """
    held = tuple(shape.variables[server :: shape.ps] for server in range(shape.ps))
    count = len(shape.variables)
    return Allocation(held, count % shape.ps, (count + 1) % shape.ps)


def async_step(shape: Shape, costs: Costs) -> Dataflow:
    """A step of `mnist_async.py`: read, compute, count, apply."""
    step = _Step(shape, costs, costs.session_s + shape.batch_size * costs.feed_s)
    flow, servers = step.flow, step.servers
    known = step.read_step()
    computed = step.compute(known)

    # Count: when the worker and every server take part, the global step is increased.
    counted = flow.add(Operation(servers.counter, mark=Mark.COUNT))
    flow.connect(computed, counted)
    for part in step.parts:
        flow.connect(part, counted)

    # Apply: the worker computes the probe's gradient after the global step is increased.
    may_probe = flow.add(Operation(WORKER))
    flow.connect(counted, may_probe)
    ended = flow.add(Operation(WORKER))
    flow.connect(counted, ended, STEP_BYTES)
    applied = {}
    for server in servers.holders:
        applied[server] = step.apply(server)
        flow.connect(known, applied[server], RATE_BYTES)
        if servers.held[server]:
            flow.connect(counted, applied[server])
        for size in servers.held[server]:
            flow.connect(computed, applied[server], size)
        if server == servers.probe:
            flow.connect(may_probe, applied[server], RATE_BYTES)
        if shape.ps > 1:  # the worker's own part waits until all updates are done
            flow.connect(applied[server], ended)
    return step.end(ended, applied)


def sync_step(shape: Shape, costs: Costs) -> Dataflow:
    """A worker's step of `mnist_sync.py`: read, compute, send gradients, wait for a token."""
    step = _Step(shape, costs, costs.session_s + shape.batch_size * costs.feed_s)
    flow, servers = step.flow, step.servers
    computed = step.compute(step.read_step())
    pushed = {}
    for server in servers.holders:
        pushed[server] = step.apply(server, gives=(server, 1))
        probe = [RATE_BYTES] if server == servers.probe else []
        for size in (*servers.held[server], *probe):
            flow.connect(computed, pushed[server], size)
            flow.connect(computed, pushed[server], STEP_BYTES)  # the step that it is computed for
    step.wait_for_all(pushed)
    token = flow.add(Operation(servers.counter, takes=(TOKENS, 1)))
    for each in pushed.values():
        flow.connect(each, token)
    ended = flow.add(Operation(WORKER))
    flow.connect(token, ended, STEP_BYTES)
    for part in step.parts:
        flow.connect(part, ended)
    return step.end(ended, {**pushed, servers.counter: token})


def sync_update(shape: Shape, costs: Costs) -> Dataflow:
    """The chief's update of `mnist_sync.py`: take the mean, apply it, distribute the tokens."""
    step = _Step(shape, costs, costs.update_s)
    flow, servers = step.flow, step.servers
    known = step.read_step()
    applied = {}
    for server in servers.holders:
        applied[server] = step.apply(server, takes=(server, shape.workers))
        flow.connect(known, applied[server], RATE_BYTES)
    step.wait_for_all(applied)
    tokens = flow.add(Operation(servers.counter, gives=(TOKENS, shape.workers)))
    for each in applied.values():
        flow.connect(each, tokens)
    return step.end(flow.add(Operation(WORKER)), {**applied, servers.counter: tokens})


class _Step:
    """The common operations of all steps.

    A step begins with the session, which asks every server to run its part.

    Args:
        shape: The training.
        costs: The costs of a step.
        cpu_s: CPU seconds of the session.

    Attributes:
        flow: The operations so far.
        servers: The variables of the servers.
        parts: The first operation of each server's part.
    """

    def __init__(self, shape: Shape, costs: Costs, cpu_s: float) -> None:
        self.flow = Dataflow()
        self.servers = allocate(shape)
        self.parts = []
        self._apply_byte_s = costs.apply_byte_s
        self._begun = self.flow.first = self.flow.add(Operation(WORKER, cpu_s))
        for server in range(shape.ps):
            self.parts.append(self.flow.add(Operation(server)))
        for part in self.parts:
            self.flow.connect(self._begun, part, calls=0.5)

    def read_step(self) -> int:
        """Read the global step; return the operation after which the worker knows it."""
        step = self.flow.add(Operation(self.servers.counter, mark=Mark.READ))
        self.flow.connect(self.parts[self.servers.counter], step)
        known = self.flow.add(Operation(WORKER))
        self.flow.connect(self._begun, known)
        self.flow.connect(step, known, STEP_BYTES)
        return known

    def compute(self, known: int) -> int:
        """Read each parameter after the global step, and compute the gradients."""
        computed = self.flow.add(Operation(WORKER, computes=True))
        for server in self.servers.readers:
            read = self.flow.add(Operation(server))
            self.flow.connect(self.parts[server], read)
            self.flow.connect(known, read)  # the parameter is read after the step
            for size in self.servers.held[server]:
                self.flow.connect(read, computed, size)
        return computed

    def apply(self, server: int, takes: Amount | None = None, gives: Amount | None = None) -> int:
        """Apply gradients to all parameters of a server."""
        cpu_s = sum(self.servers.held[server]) * self._apply_byte_s
        return self.flow.add(Operation(server, cpu_s, takes=takes, gives=gives))

    def wait_for_all(self, changing: Mapping[int, int]) -> None:
        """Let operations that change variables wait for the worker and every server."""
        for operation in changing.values():
            for begun in (self._begun, *self.parts):
                self.flow.connect(begun, operation)

    def end(self, ended: int, answering: Mapping[int, int]) -> Dataflow:
        """Let the servers answer, and ask them to forget the step.

        Args:
            ended: The worker's last operation.
            answering: The last operation of each server that changes variables; the others answer
                at once.
        """
        self.flow.last = ended
        forgotten = self.flow.add(Operation(WORKER))
        for server, part in enumerate(self.parts):
            self.flow.connect(answering.get(server, part), ended, calls=0.5)
            forget = self.flow.add(Operation(server))
            self.flow.connect(ended, forget, calls=0.5)
            self.flow.connect(forget, forgotten, calls=0.5)
        return self.flow
