"""The model: the training, the host, the costs of a step, and the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Final


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
        shares: The share of the time for which each worker's program runs, as the fault `slow`
            sets it; a worker without an entry always runs.
    """

    way: Way
    workers: int
    ps: int
    batch_size: int = 100
    variables: tuple[int, ...] = SOFTMAX
    shares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.workers < 1 or self.batch_size < 1 or (self.ps < 1) != (self.way is Way.RING):
            raise ValueError(f"impossible training: {self}")
        if len(self.shares) > self.workers or not all(0 < share <= 1 for share in self.shares):
            raise ValueError(f"shares {self.shares} do not fit {self.workers} workers")

    @property
    def images_per_step(self) -> int:
        """Images of one global step."""
        return self.batch_size * (1 if self.way is Way.ASYNC else self.workers)

    def held(self) -> list[int]:
        """Bytes of the parameters of each server, placed round robin as TensorFlow does."""
        return [sum(self.variables[server :: self.ps]) for server in range(self.ps)]


@dataclass(frozen=True, slots=True)
class Host:
    """The hardware.

    Attributes:
        cores: CPU cores of the host; with `separate` of each host.
        bandwidth: Bytes per second of each node's link, in each direction.
        latency_s: Seconds from one node to another, in addition to the time by the bandwidth.
        separate: Whether each node is a host of its own. Otherwise all share one host's cores.
        nodes: The node of each task, servers first; empty: a node for each task.
        device_s: Seconds in which a GPU of a worker computes a batch; 0: the cores compute it.
    """

    cores: int
    bandwidth: float = float("inf")
    latency_s: float = 0.0
    separate: bool = False
    nodes: tuple[int, ...] = ()
    device_s: float = 0.0

    def __post_init__(self) -> None:
        if self.cores < 1 or self.bandwidth <= 0 or self.latency_s < 0 or self.device_s < 0:
            raise ValueError(f"impossible host: {self}")


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

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} is {value}: a cost must be finite and at least 0")
        if self.after > 1:
            raise ValueError(f"after is {self.after}: a share is at most 1")

    def scaled(self, factor: float) -> Costs:
        """Return the costs of a machine on which all work takes `factor` times as long."""
        changed = {
            name: value * factor for name, value in asdict(self).items() if name.endswith("_s")
        }
        return replace(self, **changed)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine whose costs are known.

    Attributes:
        costs: The costs of a step.
        ratios: Step times that were measured one by one, divided by their mean. Each service time
            is its cost times one of them, drawn at random; empty: no spread.
        shapes: The trainings that calibrated the costs.
        host: The host of these trainings.
        label: What to call the machine: `AMD EPYC, 2 cores`, or the id of a run.
    """

    costs: Costs
    ratios: tuple[float, ...]
    shapes: tuple[Shape, ...]
    host: Host
    label: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """The results of a simulated training in its steady state.

    Attributes:
        shape: The training.
        steps_per_s: Global steps per second.
        staleness: The mean number of updates by others between a worker's read and its own update;
            None if gradients cannot be stale.
        worker_cpu_s: CPU seconds of all workers per global step.
        ps_cpu_s: CPU seconds of all parameter servers per global step.
        busy: The share of time in which the busiest one of each kind works: `cores` of a host, `ps`
            of a host with a server, `link` in its fuller direction.
    """

    shape: Shape
    steps_per_s: float
    staleness: float | None
    worker_cpu_s: float
    ps_cpu_s: float
    busy: Mapping[str, float]

    @property
    def images_per_s(self) -> float:
        """Images of all workers per second."""
        return self.steps_per_s * self.shape.images_per_step

    @property
    def limit(self) -> str:
        """The busiest resource if it is at least 80% busy, otherwise `workers`."""
        name = max(self.busy, key=lambda each: self.busy[each])
        return name if self.busy[name] >= FULL else "workers"


FULL: Final = 0.8
