"""What is simulated, on what and at which costs, and the figures of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import resources
from typing import Any, Final


class Way(StrEnum):
    """How the workers come to common parameters."""

    ASYNC = "async"
    """Parameter servers; each worker updates at once, and nobody waits (`mnist_async.py`)."""
    SYNC = "sync"
    """Parameter servers; one update of the gradients of all workers (`mnist_sync.py`)."""
    RING = "multiworker"
    """No servers: an all-reduce in a ring of the workers (`all_reduce.py`)."""


SOFTMAX: Final = (784 * 10 * 4, 10 * 4)
"""Bytes of softmax regression's weights and biases, in the order of their creation: float32."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is trained, and by how many.

    Attributes:
        way: How the workers come to common parameters.
        workers: How many, 1 or more.
        ps: Parameter servers, 1 or more; 0 with `Way.RING`.
        batch_size: Images in a worker's batch.
        variables: Bytes of each parameter, in the order in which they are created.
        slowness: How many times as long as usual each worker computes; empty: all alike.
    """

    way: Way
    workers: int
    ps: int
    batch_size: int = 100
    variables: tuple[int, ...] = SOFTMAX
    slowness: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.workers < 1 or self.batch_size < 1 or (self.ps < 1) != (self.way is Way.RING):
            raise ValueError(f"no such training: {self}")
        if self.slowness and len(self.slowness) != self.workers:
            raise ValueError(f"{len(self.slowness)} slownesses for {self.workers} workers")

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters."""
        return sum(self.variables)

    @property
    def images_per_step(self) -> int:
        """Images that one global step has seen."""
        return self.batch_size * (1 if self.way is Way.ASYNC else self.workers)


@dataclass(frozen=True, slots=True)
class Box:
    """What it is trained on.

    Attributes:
        cores: CPU cores of each node.
        nodes: Machines, over which servers and workers are dealt in turn; 0: one for each task.
        bandwidth: Bytes per second of a node's link, in each direction by itself.
        latency_s: Seconds from one node to another, on top of what the bandwidth takes.
        taken: Cores of each node that other work keeps busy, on the average: 0.3 of one.
        ps_on: The node of each parameter server, from 0; empty, like the next: they are dealt.
        worker_on: The node of each worker. A training of fewer tasks uses the first of either.
    """

    cores: int
    nodes: int = 1
    bandwidth: float = float("inf")
    latency_s: float = 0.0
    taken: float = 0.0
    ps_on: tuple[int, ...] = ()
    worker_on: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.cores < 1 or self.nodes < 0 or self.bandwidth <= 0 or self.latency_s < 0:
            raise ValueError(f"no such box: {self}")
        if not 0 <= self.taken < self.cores:
            raise ValueError(f"others cannot take {self.taken} of {self.cores} cores")
        if any(not 0 <= node < self.nodes for node in (*self.ps_on, *self.worker_on)):
            raise ValueError(f"no such nodes: {self}")

    def places(self, shape: Shape) -> list[int]:
        """The node of each task, servers first, as descriptions have them.

        Raises:
            ValueError: It says where tasks are, but not of so many.
        """
        count = shape.workers + shape.ps
        if not self.ps_on and not self.worker_on:
            return [task % (self.nodes or count) for task in range(count)]
        if len(self.ps_on) < shape.ps or len(self.worker_on) < shape.workers:
            raise ValueError(f"no place for each task of {shape}: {self}")
        return [*self.ps_on[: shape.ps], *self.worker_on[: shape.workers]]


@dataclass(frozen=True, slots=True)
class Costs:
    """What a step costs; seconds are of one core's time unless it says otherwise.

    Attributes:
        session_s: A worker's fixed cost of a step with parameter servers: Python, the session's own
            work.
        update_s: The chief's fixed cost of a synchronous update.
        eager_s: A worker's fixed cost of an all-reduce step.
        feed_s: An image that is drawn from the data set and fed to TensorFlow, before the step.
        image_s: The gradients of one image, and nothing else.
        device_s: Seconds in which an accelerator computes a batch's gradients, with no core busy;
            0: the cores compute them, for `image_s` each image.
        call_s: A remote call, at each of its two ends.
        hop_s: A call in the ring, at each of its two ends.
        byte_s: A byte that is sent, at each end.
        apply_byte_s: A byte of parameters that a gradient is applied to.
        crowding: How much longer work takes on a core where another task was last, as a share.
        wait_s: Seconds from a message's arrival until a thread takes it up; no core is busy.
        hop_wait_s: The same in the ring.
        call_bytes: Bytes on the wire of a call that carries nothing: both directions, with headers.
        spread: How much the time of computing varies: standard deviation / mean (log-normal).
    """

    session_s: float = 0.0
    update_s: float = 0.0
    eager_s: float = 0.0
    feed_s: float = 0.0
    image_s: float = 0.0
    device_s: float = 0.0
    call_s: float = 0.0
    hop_s: float = 0.0
    byte_s: float = 0.0
    apply_byte_s: float = 0.0
    crowding: float = 0.0
    wait_s: float = 0.0
    hop_wait_s: float = 0.0
    call_bytes: float = 0.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} is {value}: no cost")

    def to_json(self) -> dict[str, Any]:
        """All of them by name."""
        return asdict(self)


def _measured() -> Costs:
    text = (resources.files(__package__) / "costs.json").read_text(encoding="utf-8")
    return Costs(**json.loads(text))


MEASURED: Final = _measured()
"""Those of TensorFlow 2.21 on one CPU; `python -m benchmarks scaling` measures and writes them."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a simulated training did in its steady state.

    Attributes:
        shape: What was trained.
        steps_per_s: Global steps per second.
        worker_cpu_s: CPU seconds of all workers per global step.
        ps_cpu_s: CPU seconds of all parameter servers per global step.
        payload_bytes: Bytes of tensors between tasks per global step.
        wire_bytes: The same with the headers of the calls that carry them.
        computing: Share of the time in which a worker computes gradients; the mean of all.
        cores_busy: Share of the time in which the cores of the busiest node work for the training.
        link_busy: Share of the time in which the busiest direction of a link carries bytes.
        staleness: Updates by others between a worker's read and its own update; the mean. None
            where gradients cannot be stale.
    """

    shape: Shape
    steps_per_s: float
    worker_cpu_s: float
    ps_cpu_s: float
    payload_bytes: float
    wire_bytes: float
    computing: float
    cores_busy: float
    link_busy: float
    staleness: float | None

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all tasks per global step."""
        return self.worker_cpu_s + self.ps_cpu_s

    @property
    def images_per_s(self) -> float:
        """Images seen by all workers per second."""
        return self.steps_per_s * self.shape.images_per_step

    @property
    def ps_cores(self) -> float:
        """Cores that a parameter server keeps busy, the mean of all; 0 where there is none."""
        return self.ps_cpu_s * self.steps_per_s / self.shape.ps if self.shape.ps else 0.0

    def efficiency(self, alone: Forecast) -> float:
        """Images per second, as a share of so many times those of one worker.

        Args:
            alone: The same training by one worker.
        """
        return self.images_per_s / (self.shape.workers * alone.images_per_s)


def least_bytes(shape: Shape) -> float:
    """Bytes between all tasks per global step: parameters down and gradients up, and nothing else.

    With parameter servers each worker that takes part reads all parameters of S bytes and sends as
    many: 2 S, in a synchronous step n times. In a ring each of n workers sends 2 (n - 1) / n times
    S (P. Patarasuk and X. Yuan, 2009).
    """
    size = shape.parameter_bytes
    match shape.way:
        case Way.ASYNC:
            return 2 * size
        case Way.SYNC:
            return 2 * size * shape.workers
        case Way.RING:
            return 2 * (shape.workers - 1) * size
