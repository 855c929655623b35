"""The steps of the training programs, call by call: operations on tasks, and calls between them.

TensorFlow cuts a graph where an edge crosses from one task to another, and makes a remote call
(`RecvTensor`) of each such edge, also of those that carry nothing and only keep order. What follows
are the edges that it made of `mnist_async.py` and `mnist_sync.py` with 1, 2 and 4 parameter
servers, by the partition graphs that a session returns on request
(`RunOptions.output_partition_graphs`): 11, 17 and 22 of an asynchronous step, 13, 19 and 31 of a
synchronous one, and 3, 8 and 19 of a synchronous update. Beside them each parameter server is asked
to run its part (`RunGraph`) and to forget it afterwards (`CleanupGraph`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from lab.simulation.model import Costs, Shape

Amount = tuple[Hashable, int]
"""A pool, and how much of it."""

WORKER: Final = -1
"""The task that makes the step; a parameter server is its index."""


class Mark(Enum):
    """What an operation tells of when it is done."""

    READ = auto()
    """The global step was read."""
    COUNT = auto()
    """The global step was raised by one."""


@dataclass(slots=True)
class Operation:
    """Something that a task does as soon as all that it needs is there.

    Attributes:
        task: `WORKER`, or the index of a parameter server.
        cpu_s: CPU seconds.
        computes: Whether it is the gradients of a batch, which cost what the worker makes of them.
        mark: What it tells of.
        takes: What it waits for before it begins.
        gives: What it puts into a pool when it is done.
        calls: What it hands on: (operation, bytes, calls).
        needs: From how many it waits for something.
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
        operations: All of them, by number.
        first: The one that begins it.
        last: The one with which it has been made; some may tidy up afterwards.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.first = self.last = 0

    def add(self, operation: Operation) -> int:
        """Add an operation, and return its number."""
        self.operations.append(operation)
        return len(self.operations) - 1

    def hand(self, source: int, target: int, size: float = 0.0, calls: float = 1.0) -> None:
        """Let one operation wait for another.

        Args:
            source: The one that is waited for.
            target: The one that waits.
            size: Bytes that go from one to the other.
            calls: What it takes where they are on two tasks: one remote call for a tensor, half of
                one for a request or an answer alone.
        """
        self.operations[source].calls.append((target, size, calls))
        self.operations[target].needs += 1


STEP_BYTES: Final = 8  # global_step, its copies and the tokens: int64
RATE_BYTES: Final = 4  # the learning rate, the probe and its gradient: float32
TOKENS: Final = "tokens"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Which parameter server holds what.

    Attributes:
        held: Bytes of each parameter that a server holds, by server.
        counter: The server that holds the global step.
        probe: The server that holds the probe.
    """

    held: tuple[tuple[int, ...], ...]
    counter: int
    probe: int

    @property
    def readers(self) -> list[int]:
        """Servers from which parameters are read."""
        return [server for server, sizes in enumerate(self.held) if sizes]

    @property
    def holders(self) -> list[int]:
        """Servers on which something is updated by a gradient."""
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

    # Count: the worker and every server are present, and then the number is taken.
    counted = flow.add(Operation(servers.counter, mark=Mark.COUNT))
    flow.hand(computed, counted)
    for part in step.parts:
        flow.hand(part, counted)

    # Apply: the probe's gradient is computed by the worker when the number has been taken.
    may_probe = flow.add(Operation(WORKER))
    flow.hand(counted, may_probe)
    ended = flow.add(Operation(WORKER))
    flow.hand(counted, ended, STEP_BYTES)
    applied = {}
    for server in servers.holders:
        applied[server] = step.apply(server)
        flow.hand(known, applied[server], RATE_BYTES)
        if servers.held[server]:
            flow.hand(counted, applied[server])
        for size in servers.held[server]:
            flow.hand(computed, applied[server], size)
        if server == servers.probe:
            flow.hand(may_probe, applied[server], RATE_BYTES)
        if shape.ps > 1:  # the worker's own part asks whether all updates are done
            flow.hand(applied[server], ended)
    return step.end(ended, applied)


def sync_step(shape: Shape, costs: Costs) -> Dataflow:
    """A worker's step of `mnist_sync.py`: read, compute, hand in, wait for a token."""
    step = _Step(shape, costs, costs.session_s + shape.batch_size * costs.feed_s)
    flow, servers = step.flow, step.servers
    computed = step.compute(step.read_step())
    handed_in = {}
    for server in servers.holders:
        handed_in[server] = step.apply(server, gives=(server, 1))
        probe = [RATE_BYTES] if server == servers.probe else []
        for size in (*servers.held[server], *probe):
            flow.hand(computed, handed_in[server], size)
            flow.hand(computed, handed_in[server], STEP_BYTES)  # the step that it is computed for
    step.roll_call(handed_in)
    token = flow.add(Operation(servers.counter, takes=(TOKENS, 1)))
    for each in handed_in.values():
        flow.hand(each, token)
    ended = flow.add(Operation(WORKER))
    flow.hand(token, ended, STEP_BYTES)
    for part in step.parts:
        flow.hand(part, ended)
    return step.end(ended, {**handed_in, servers.counter: token})


def sync_update(shape: Shape, costs: Costs) -> Dataflow:
    """The chief's update of `mnist_sync.py`: take the mean, apply it, hand out the tokens."""
    step = _Step(shape, costs, costs.update_s)
    flow, servers = step.flow, step.servers
    known = step.read_step()
    applied = {}
    for server in servers.holders:
        applied[server] = step.apply(server, takes=(server, shape.workers))
        flow.hand(known, applied[server], RATE_BYTES)
    step.roll_call(applied)
    tokens = flow.add(Operation(servers.counter, gives=(TOKENS, shape.workers)))
    for each in applied.values():
        flow.hand(each, tokens)
    return step.end(flow.add(Operation(WORKER)), {**applied, servers.counter: tokens})


class _Step:
    """What the steps of all programs have in common.

    It begins with the session, which asks every server to run its part.

    Args:
        shape: What is trained.
        costs: What a step costs.
        cpu_s: What the session costs.

    Attributes:
        flow: The operations so far.
        servers: What the servers hold.
        parts: The beginning of each server's part.
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
            self.flow.hand(self._begun, part, calls=0.5)

    def read_step(self) -> int:
        """Read the global step; the operation after which the worker knows it."""
        step = self.flow.add(Operation(self.servers.counter, mark=Mark.READ))
        self.flow.hand(self.parts[self.servers.counter], step)
        known = self.flow.add(Operation(WORKER))
        self.flow.hand(self._begun, known)
        self.flow.hand(step, known, STEP_BYTES)
        return known

    def compute(self, known: int) -> int:
        """Read each parameter when the global step is known, and compute the gradients."""
        computed = self.flow.add(Operation(WORKER, computes=True))
        for server in self.servers.readers:
            read = self.flow.add(Operation(server))
            self.flow.hand(self.parts[server], read)
            self.flow.hand(known, read)  # the worker reports that it has the step
            for size in self.servers.held[server]:
                self.flow.hand(read, computed, size)
        return computed

    def apply(self, server: int, takes: Amount | None = None, gives: Amount | None = None) -> int:
        """Apply gradients to all that a server holds."""
        cpu_s = sum(self.servers.held[server]) * self._apply_byte_s
        return self.flow.add(Operation(server, cpu_s, takes=takes, gives=gives))

    def roll_call(self, changing: Mapping[int, int]) -> None:
        """Let what changes something wait until the worker and every server are present."""
        for operation in changing.values():
            for present in (self._begun, *self.parts):
                self.flow.hand(present, operation)

    def end(self, ended: int, answering: Mapping[int, int]) -> Dataflow:
        """The servers answer, and are asked to forget the step.

        Args:
            ended: The worker's last operation.
            answering: The last operations of servers; the others answer at once.
        """
        self.flow.last = ended
        forgotten = self.flow.add(Operation(WORKER))
        for server, part in enumerate(self.parts):
            self.flow.hand(answering.get(server, part), ended, calls=0.5)
            forget = self.flow.add(Operation(server))
            self.flow.hand(ended, forget, calls=0.5)
            self.flow.hand(forget, forgotten, calls=0.5)
        return self.flow
