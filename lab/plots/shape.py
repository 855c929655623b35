"""The cluster as it is drawn, from a run or from a plan, and which of its tasks communicate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.frameworks import TENSORFLOW

if TYPE_CHECKING:
    from lab.experiments.registry import Experiment
    from lab.placement.plan import Plan
    from lab.store.run_info import RunInfo


@dataclass(frozen=True, slots=True)
class TaskShape:
    """A task.

    Attributes:
        job: The name of the task's job: `worker`.
        index: The task's index in its job.
        node: The node that it runs on.
        address: Its `host:port`.
        gpus: Device ids of its GPUs, in the order in which the framework numbers them.
        serves: Whether it serves the others and ends when they have ended.
        framework: The framework of its program, a key of `FRAMEWORKS`.
    """

    job: str
    index: int
    node: str
    address: str
    gpus: tuple[str, ...]
    serves: bool
    framework: str

    @property
    def name(self) -> str:
        """The task as a service name: `worker-1`."""
        return f"{self.job}-{self.index}"

    @property
    def lines(self) -> tuple[str, ...]:
        """What is drawn below its name; TensorFlow's device names have `/job:worker/task:1`."""
        of_tensorflow = (f"/job:{self.job}/task:{self.index}",)
        return (*(of_tensorflow if self.framework == TENSORFLOW.name else ()), self.address)


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """A cluster: its nodes, its tasks, and the experiment that runs on it.

    Attributes:
        name: The project's name; may be empty.
        backend: The name of its backend; empty before a run.
        experiment: The experiment; empty if it is not known or the user's own program runs.
        nodes: Node to device ids of its GPUs, in the config's order.
        tasks: In the cluster's order.
    """

    name: str
    backend: str
    experiment: str
    nodes: Mapping[str, tuple[str, ...]]
    tasks: tuple[TaskShape, ...]

    @property
    def numbers(self) -> dict[str, int]:
        """A number for each GPU by its device id, counted node by node."""
        own = (gpu for gpus in self.nodes.values() for gpu in gpus)
        used = (gpu for task in self.tasks for gpu in task.gpus)
        return {gpu: place for place, gpu in enumerate(dict.fromkeys([*own, *used]))}


def of_plan(plan: Plan, experiment: Experiment | None) -> ClusterShape:
    """The cluster of a plan; `experiment` is the one that runs on it, if known."""
    services = experiment.services if experiment else ("ps",)
    return ClusterShape(
        name=plan.name,
        backend="",
        experiment=experiment.name if experiment else "",
        nodes={node.name: node.gpus for node in plan.nodes},
        tasks=tuple(
            TaskShape(
                task.job,
                task.index,
                task.node,
                f"{task.node}:{task.port}",
                task.gpus,
                task.job in services,
                experiment.framework if experiment else TENSORFLOW.name,
            )
            for task in plan.tasks
        ),
    )


def of_run(info: RunInfo) -> ClusterShape:
    """The cluster of a run; what `run.json` does not hold is empty."""
    rows = {row.get("task"): row for row in info.tasks}
    nodes = dict(_planned(info))
    tasks = []
    for job, addresses in info.cluster.items():
        for index, address in enumerate(addresses):
            row = rows.get(f"{job}-{index}", {})
            node = row.get("node", address.rpartition(":")[0])
            serves = job in info.spec.services
            gpus, framework = row.get("gpus", ()), info.spec.framework
            tasks.append(TaskShape(job, index, node, address, gpus, serves, framework))
    for task in tasks:
        nodes.setdefault(task.node, ())
    experiment = "" if info.spec.own else info.spec.experiment
    return ClusterShape(info.project, info.backend, experiment, nodes, tuple(tasks))


def _planned(info: RunInfo) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the nodes of the plan and their GPUs; the plan in an archive may be any object."""
    nodes = (info.plan or {}).get("nodes")
    for node in nodes if isinstance(nodes, list) else ():
        if isinstance(node, dict) and "name" in node:
            gpus = node.get("gpus")
            yield str(node["name"]), tuple(map(str, gpus)) if isinstance(gpus, list | tuple) else ()


_RINGS: Final = {
    **dict.fromkeys(("multiworker", "horovod", "ddp", "fsdp", "jax-dp"), "gradients"),
    "local-sgd": "parameters",
}
"""Experiments whose workers add up something around a ring, and what it is."""

_ALL_TO_ALL: Final = frozenset({"hello"})
"""Experiments in which every task exchanges data with every other task."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Which tasks communicate.

    Attributes:
        links: Pairs of tasks.
        ring: Whether the links form a ring: each task sends to the next one.
        traffic: What the tasks send, in a sentence.
    """

    links: tuple[tuple[str, str], ...]
    ring: bool
    traffic: str


def topology_of(shape: ClusterShape) -> Topology:
    """The links between tasks, from the experiment and from the cluster's jobs."""
    tasks = [task.name for task in shape.tasks]
    by_job: dict[str, list[str]] = {}
    for task in shape.tasks:
        by_job.setdefault(task.job, []).append(task.name)
    workers = by_job.get("worker", [])
    if shape.experiment in _RINGS and len(workers) > 1:
        ring = tuple(zip(workers, [*workers[1:], workers[0]], strict=True))
        what = _RINGS[shape.experiment]
        return Topology(ring, True, f"The workers add up their {what} around a ring.")
    if shape.experiment in _ALL_TO_ALL:
        pairs = [(one, two) for place, one in enumerate(tasks) for two in tasks[place + 1 :]]
        return Topology(tuple(pairs), False, "Every task exchanges data with every other task.")
    if "client" in by_job:
        pairs = [(client, task) for client in by_job["client"] for task in tasks if task != client]
        return Topology(tuple(pairs), False, "A client trains on the servers of all other tasks.")
    if servers := by_job.get("ps", []):
        return _parameter_servers(by_job, servers)
    if len(tasks) == 1:
        return Topology((), False, "A single task trains. It sends nothing to other nodes.")
    return Topology((), False, "It is not known what these tasks send to each other.")


def _parameter_servers(by_job: dict[str, list[str]], servers: list[str]) -> Topology:
    trained = [
        task for job, tasks in by_job.items() if job not in {"ps", "evaluator"} for task in tasks
    ]
    links = [(server, task) for server in servers for task in trained]
    traffic = "Every worker fetches parameters from the parameter servers and sends gradients back."
    if "evaluator" in by_job:
        traffic += " The evaluator only reads checkpoints. It communicates with no other task."
    return Topology(tuple(links), False, traffic)
