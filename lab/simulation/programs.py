"""The steps of the training programs, call by call.

TensorFlow cuts a graph where an edge crosses from one task to another, and makes a remote call
(`RecvTensor`) of each such edge, also of those that carry nothing and only keep order. What follows
are the edges that it made of `mnist_async.py` and `mnist_sync.py` with 1, 2 and 4 parameter
servers, by the partition graphs that a session returns on request
(`RunOptions.output_partition_graphs`): 11, 17 and 22 of an asynchronous step, 13, 19 and 31 of a
synchronous one, and 3, 8 and 19 of a synchronous update. Beside them each parameter server is asked
to run its part (`RunGraph`) and to forget it afterwards (`CleanupGraph`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lab.simulation.costs import Costs
from lab.simulation.dataflow import WORKER, Dataflow, Mark, Operation
from lab.simulation.model import Shape

STEP_BYTES: Final = 8  # global_step, its copies and the tokens: int64
RATE_BYTES: Final = 4  # the learning rate, the probe and its gradient: float32
TOKENS: Final = "tokens"
PROBE: Final = "probe"


@dataclass(frozen=True, slots=True)
class Dealt:
    """Which parameter server holds what.

    Attributes:
        ps: How many there are.
        held: Bytes of each parameter that a server holds, by server.
        counter: The server that holds the global step.
        probe: The server that holds the probe.
    """

    ps: int
    held: tuple[tuple[int, ...], ...]
    counter: int
    probe: int

    @property
    def readers(self) -> list[int]:
        """Servers from which parameters are read."""
        return [server for server in range(self.ps) if self.held[server]]

    @property
    def holders(self) -> list[int]:
        """Servers on which something is updated by a gradient."""
        return sorted({*self.readers, self.probe})


def deal(shape: Shape) -> Dealt:
    """Deal the variables to the servers as `tf.train.replica_device_setter` does: round robin.

    The programs create the parameters, then the global step, then the probe.
    """
    held = tuple(shape.variables[server :: shape.ps] for server in range(shape.ps))
    count = len(shape.variables)
    return Dealt(shape.ps, held, count % shape.ps, (count + 1) % shape.ps)


def async_step(shape: Shape, costs: Costs) -> Dataflow:
    """A step of `mnist_async.py`: read, compute, count, apply."""
    dealt, flow = deal(shape), Dataflow()
    begun, parts = _begin(flow, dealt, costs.session_s + shape.batch_size * costs.feed_s)
    known, computed = _read_and_compute(flow, dealt, begun, parts)

    # Count: the worker and every server are present, and then the number is taken.
    counted = flow.add(Operation(dealt.counter, mark=Mark.COUNT))
    flow.hand(computed, counted)
    for part in parts:
        flow.hand(part, counted)

    # Apply: the probe's gradient is computed by the worker when the number has been taken.
    may_probe = flow.add(Operation(WORKER))
    flow.hand(counted, may_probe)
    ended = flow.add(Operation(WORKER))
    flow.hand(counted, ended, STEP_BYTES)
    applied = {}
    for server in dealt.holders:
        size = sum(dealt.held[server])
        applied[server] = flow.add(Operation(server, size * costs.apply_byte_s))
        flow.hand(known, applied[server], RATE_BYTES)
        if dealt.held[server]:
            flow.hand(counted, applied[server])
        for bytes_ in dealt.held[server]:
            flow.hand(computed, applied[server], bytes_)
        if server == dealt.probe:
            flow.hand(may_probe, applied[server], RATE_BYTES)
        if dealt.ps > 1:  # the worker's own part asks whether all updates are done
            flow.hand(applied[server], ended)
    return _end(
        flow, dealt, ended, [applied.get(server, parts[server]) for server in range(dealt.ps)]
    )


def sync_step(shape: Shape, costs: Costs) -> Dataflow:
    """A worker's step of `mnist_sync.py`: read, compute, hand in, wait for a token."""
    dealt, flow = deal(shape), Dataflow()
    begun, parts = _begin(flow, dealt, costs.session_s + shape.batch_size * costs.feed_s)
    _, computed = _read_and_compute(flow, dealt, begun, parts)
    handed_in = {}
    for server in dealt.holders:
        size = sum(dealt.held[server])
        handed_in[server] = flow.add(
            Operation(server, size * costs.apply_byte_s, gives=(server, 1))
        )
        sizes = [*dealt.held[server], *([RATE_BYTES] if server == dealt.probe else [])]
        for bytes_ in sizes:
            flow.hand(computed, handed_in[server], bytes_)
            flow.hand(computed, handed_in[server], STEP_BYTES)  # the step that it is computed for
    _roll_call(flow, begun, parts, handed_in)
    token = flow.add(Operation(dealt.counter, takes=(TOKENS, 1)))
    for each in handed_in.values():
        flow.hand(each, token)
    ended = flow.add(Operation(WORKER))
    flow.hand(token, ended, STEP_BYTES)
    for part in parts:
        flow.hand(part, ended)
    answers = {**handed_in, dealt.counter: token}
    return _end(
        flow, dealt, ended, [answers.get(server, parts[server]) for server in range(dealt.ps)]
    )


def sync_update(shape: Shape, costs: Costs) -> Dataflow:
    """The chief's update of `mnist_sync.py`: take the mean, apply it, hand out the tokens."""
    dealt, flow = deal(shape), Dataflow()
    begun, parts = _begin(flow, dealt, costs.update_s)
    known = _read_step(flow, dealt, begun, parts)
    applied = {}
    for server in dealt.holders:
        size = sum(dealt.held[server])
        applied[server] = flow.add(
            Operation(server, size * costs.apply_byte_s, takes=(server, shape.workers))
        )
        flow.hand(known, applied[server], RATE_BYTES)
    _roll_call(flow, begun, parts, applied)
    tokens = flow.add(Operation(dealt.counter, gives=(TOKENS, shape.workers)))
    for each in applied.values():
        flow.hand(each, tokens)
    answers = {**applied, dealt.counter: tokens}
    ended = flow.add(Operation(WORKER))
    return _end(
        flow, dealt, ended, [answers.get(server, parts[server]) for server in range(dealt.ps)]
    )


def _begin(flow: Dataflow, dealt: Dealt, cpu_s: float) -> tuple[int, list[int]]:
    """The session begins, and asks every server to run its part."""
    begun = flow.first = flow.add(Operation(WORKER, cpu_s))
    parts = [flow.add(Operation(server)) for server in range(dealt.ps)]
    for part in parts:
        flow.hand(begun, part, calls=0.5)
    return begun, parts


def _read_step(flow: Dataflow, dealt: Dealt, begun: int, parts: list[int]) -> int:
    """Read the global step; the operation after which the worker knows it."""
    step = flow.add(Operation(dealt.counter, mark=Mark.READ))
    flow.hand(parts[dealt.counter], step)
    known = flow.add(Operation(WORKER))
    flow.hand(begun, known)
    flow.hand(step, known, STEP_BYTES)
    return known


def _read_and_compute(
    flow: Dataflow, dealt: Dealt, begun: int, parts: list[int]
) -> tuple[int, int]:
    """Read the global step, then each parameter, and compute the gradients."""
    known = _read_step(flow, dealt, begun, parts)
    computed = flow.add(Operation(WORKER, computes=True))
    for server in dealt.readers:
        read = flow.add(Operation(server))
        flow.hand(parts[server], read)
        flow.hand(known, read)  # the worker tells that it has the step
        for size in dealt.held[server]:
            flow.hand(read, computed, size)
    return known, computed


def _roll_call(flow: Dataflow, begun: int, parts: list[int], changing: Mapping[int, int]) -> None:
    """Let what changes something wait until the worker and every server are present."""
    for operation in changing.values():
        for present in (begun, *parts):
            flow.hand(present, operation)


def _end(flow: Dataflow, dealt: Dealt, ended: int, answering: list[int]) -> Dataflow:
    """The servers answer, and are told to forget the step."""
    flow.last = ended
    forgotten = flow.add(Operation(WORKER))
    for server, operation in enumerate(answering):
        flow.hand(operation, ended, calls=0.5)
        forget = flow.add(Operation(server))
        flow.hand(ended, forget, calls=0.5)
        flow.hand(forget, forgotten, calls=0.5)
    return flow
