"""The plan: the node, GPUs, CPUs, memory and port of each task."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.runtimes import TENSORFLOW


@dataclass(frozen=True, slots=True)
class Link:
    """A node's network link; `rate_bits` in bits per second, `delay_us` in microseconds."""

    rate_bits: int | None = None
    delay_us: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """One TensorFlow task with its resources.

    Attributes:
        job: `worker`.
        index: The task's index in its job.
        node: The node that it runs on.
        port: The port of its TensorFlow server.
        gpus: Device ids (UUIDs or indices) of its GPUs; empty: it must see none.
        shares_gpus: Whether other tasks may use the same GPUs.
        gpu_memory_fraction: Part of each GPU's memory, or None for all of it.
        cpus: CPUs that it may use at once, or None for no limit.
        cpuset: Its own CPUs (`4-7,12`), or None for no pinning.
        memory_bytes: Memory limit, or None for none.
        shm_bytes: Shared memory of its node, or None for the default.
    """

    job: str
    index: int
    node: str
    port: int
    gpus: tuple[str, ...] = ()
    shares_gpus: bool = False
    gpu_memory_fraction: float | None = None
    cpus: float | None = None
    cpuset: str | None = None
    memory_bytes: int | None = None
    shm_bytes: int | None = None

    @property
    def name(self) -> str:
        """The name of the task and of its service: `worker-1` for `/job:worker/task:1`."""
        return f"{self.job}-{self.index}"


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One pseudo-node."""

    name: str
    gpus: tuple[str, ...] = ()
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A config, placed on a host.

    Attributes:
        name: The project's name.
        mode: How GPUs are pinned: `uuid`, `index`, `count` by a scheduler, or `none`.
        cluster_sha256: Digest of the config.
        nodes: The nodes, in the config's order.
        tasks: The tasks, in the config's order, job by job.
        notices: One line each, for the user: what was clamped or left out.
        shortfalls: The notices of tasks that get less than the config states.
        reasons: One line for each node with GPUs, why it got them, and one for each task's CPUs.
        runtime: The runtime of its tasks, a key of `lab.protocol.runtimes.RUNTIMES`.
        config: The text of the config without its run, for a host that places it again.
    """

    name: str
    mode: str
    cluster_sha256: str
    nodes: tuple[PlannedNode, ...]
    tasks: tuple[PlannedTask, ...]
    notices: tuple[str, ...] = ()
    shortfalls: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    runtime: str = TENSORFLOW.name
    config: str = ""

    @property
    def has_gpus(self) -> bool:
        """Whether a task has a GPU."""
        return any(task.gpus for task in self.tasks)

    def cluster_spec(self, addresses: Sequence[str] = ()) -> dict[str, list[str]]:
        """Return TensorFlow's cluster spec: job to list of addresses.

        Args:
            addresses: The addresses of all tasks, in their order; none: `node:port`.
        """
        spec: dict[str, list[str]] = {}
        own = addresses or [f"{task.node}:{task.port}" for task in self.tasks]
        for task, address in zip(self.tasks, own, strict=True):
            spec.setdefault(task.job, []).append(address)
        return spec


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """The run that `docker compose up` starts.

    Attributes:
        arguments: The experiment and its flags, as on a command line.
        start: Task to the moment at which it starts, if later than the others.
        faults: The faults that are injected into the run.
        env: The variables of the programs of each job that has any.
    """

    arguments: tuple[str, ...]
    start: Mapping[str, str]
    faults: tuple[str, ...]
    env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """The arguments as one text for a shell: the value of `LAB_RUN`."""
        return shlex.join(self.arguments)

    @property
    def services(self) -> tuple[str, ...]:
        """The jobs that end when the others have ended."""
        return EXPERIMENTS[self.arguments[0]].services

    @property
    def terms(self) -> str:
        """What it has beside its arguments, as JSON: the value of `LAB_RUN_TERMS`."""
        terms = {"start": self.start, "faults": self.faults}
        return json.dumps(terms | ({"env": self.env} if self.env else {}))
