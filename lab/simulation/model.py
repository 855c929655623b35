"""The model: the training, the hardware, the costs of a step, and the results."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import resources
from typing import Any, Final


class Way(StrEnum):
    """How the workers share parameters."""

    ASYNC = "async"
    """Parameter servers; each worker updates without waiting for others (`mnist_async.py`)."""
    SYNC = "sync"
    """Parameter servers; each update uses the gradients of all workers (`mnist_sync.py`)."""
    RING = "multiworker"
    """No parameter servers; an all-reduce in a ring of the workers (`all_reduce.py`)."""


SOFTMAX: Final = (784 * 10 * 4, 10 * 4)
"""Bytes of softmax regression's weights and biases, in the order of their creation: float32."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The training, and its numbers of tasks.

    Attributes:
        way: How the workers share parameters.
        workers: The number of workers, at least 1.
        ps: The number of parameter servers, at least 1; 0 with `Way.RING`.
        batch_size: Images in a worker's batch.
        variables: Bytes of each parameter, in the order of their creation.
        slowness: The factor on the computing time of each worker; empty: 1 for all.
    """

    way: Way
    workers: int
    ps: int
    batch_size: int = 100
    variables: tuple[int, ...] = SOFTMAX
    slowness: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.workers < 1 or self.batch_size < 1 or (self.ps < 1) != (self.way is Way.RING):
            raise ValueError(f"impossible training: {self}")
        if self.slowness and len(self.slowness) != self.workers:
            raise ValueError(f"slowness has {len(self.slowness)} values for {self.workers} workers")

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters."""
        return sum(self.variables)

    @property
    def images_per_step(self) -> int:
        """Images of one global step."""
        return self.batch_size * (1 if self.way is Way.ASYNC else self.workers)


@dataclass(frozen=True, slots=True)
class Box:
    """The hardware.

    Attributes:
        cores: CPU cores of each node.
        nodes: The number of nodes; tasks are assigned to them in turn; 0: a node for each task.
        bandwidth: Bytes per second of a node's link, in each direction.
        latency_s: Seconds from one node to another, in addition to the time by the bandwidth.
        taken: The mean number of cores of each node that other programs use, such as 0.3.
        ps_on: The node of each parameter server, from 0; if both are empty, in turn.
        worker_on: The node of each worker. A training with fewer tasks uses the first entries.
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
            raise ValueError(f"impossible hardware: {self}")
        if not 0 <= self.taken < self.cores:
            raise ValueError(f"other programs cannot use {self.taken} of {self.cores} cores")
        if any(not 0 <= node < self.nodes for node in (*self.ps_on, *self.worker_on)):
            raise ValueError(f"a task is on a node that does not exist: {self}")

    def places(self, shape: Shape) -> list[int]:
        """The node of each task, servers first.

        Raises:
            ValueError: `ps_on` or `worker_on` has fewer entries than the training has tasks.
        """
        count = shape.workers + shape.ps
        if not self.ps_on and not self.worker_on:
            return [task % (self.nodes or count) for task in range(count)]
        if len(self.ps_on) < shape.ps or len(self.worker_on) < shape.workers:
            raise ValueError(f"ps_on or worker_on is too short for {shape}: {self}")
        return [*self.ps_on[: shape.ps], *self.worker_on[: shape.workers]]


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a step, in seconds of one core unless stated otherwise.

    Attributes:
        session_s: A worker's fixed cost of a step with parameter servers: Python, and the session.
        update_s: The chief's fixed cost of a synchronous update.
        eager_s: A worker's fixed cost of an all-reduce step.
        feed_s: Drawing an image from the data set and feeding it to TensorFlow, before the step.
        image_s: Only the gradients of one image.
        device_s: Wall seconds in which an accelerator computes a batch's gradients, without a core;
            0: the cores compute them, for `image_s` an image.
        call_s: A remote call, at each of its two ends.
        hop_s: A call in the ring, at each of its two ends.
        byte_s: A sent byte, at each end.
        apply_byte_s: Applying a gradient to a byte of parameters.
        crowding: The additional time of work on a core that another task used last, as a share.
        wait_s: Wall seconds from a message's arrival until a thread handles it, without a core.
        hop_wait_s: The same in the ring.
        call_bytes: Bytes on the wire of an empty call: both directions, with headers.
        spread: Standard deviation / mean of the time of computing (log-normal).
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
                raise ValueError(f"{name} is {value}: a cost must be finite and at least 0")

    def to_json(self) -> dict[str, Any]:
        """All costs by name."""
        return asdict(self)


def _measured() -> Costs:
    text = (resources.files(__package__) / "costs.json").read_text(encoding="utf-8")
    return Costs(**json.loads(text))


MEASURED: Final = _measured()
"""The costs of TensorFlow 2.21 on one CPU. `python -m benchmarks scaling` writes them."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The results of a simulated training in its steady state.

    Attributes:
        shape: The training.
        steps_per_s: Global steps per second.
        worker_cpu_s: CPU seconds of all workers per global step.
        ps_cpu_s: CPU seconds of all parameter servers per global step.
        payload_bytes: Bytes of tensors between tasks per global step.
        wire_bytes: The same with the headers of the calls that carry them.
        computing: The share of time in which a worker computes gradients; the mean over workers.
        waiting: The share of time in which a worker neither works nor computes; the mean over
            workers. It waits for a core, a link, a server or other workers.
        cores_busy: The share of time in which the busiest node's cores work for the training.
        link_busy: The share of time in which the busiest direction of a link carries bytes.
        staleness: The mean number of updates by others between a worker's read and its own update;
            None if gradients cannot be stale.
    """

    shape: Shape
    steps_per_s: float
    worker_cpu_s: float
    ps_cpu_s: float
    payload_bytes: float
    wire_bytes: float
    computing: float
    waiting: float
    cores_busy: float
    link_busy: float
    staleness: float | None

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all tasks per global step."""
        return self.worker_cpu_s + self.ps_cpu_s

    @property
    def images_per_s(self) -> float:
        """Images of all workers per second."""
        return self.steps_per_s * self.shape.images_per_step

    @property
    def ps_cores(self) -> float:
        """The mean number of cores that a parameter server keeps busy; 0 without servers."""
        return self.ps_cpu_s * self.steps_per_s / self.shape.ps if self.shape.ps else 0.0

    def efficiency(self, alone: Forecast) -> float:
        """Images per second, relative to those of one worker times the number of workers.

        Args:
            alone: The same training with one worker.
        """
        return self.images_per_s / (self.shape.workers * alone.images_per_s)


def least_bytes(shape: Shape) -> float:
    """The least bytes between all tasks per global step: only parameters and gradients.

    With parameter servers, each worker of the step reads all parameters of S bytes and sends S
    bytes of gradients: 2 S, and n times 2 S in a synchronous step. In a ring, each of n workers
    sends 2 (n - 1) / n times S (P. Patarasuk and X. Yuan, 2009).
    """
    size = shape.parameter_bytes
    match shape.way:
        case Way.ASYNC:
            return 2 * size
        case Way.SYNC:
            return 2 * size * shape.workers
        case Way.RING:
            return 2 * (shape.workers - 1) * size
