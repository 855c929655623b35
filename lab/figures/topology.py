"""Who talks to whom: the tasks of a cluster, and what their program sends between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lab.figures.shape import ClusterShape

_RINGS: Final = frozenset({"multiworker", "horovod"})
"""Experiments whose workers add up their gradients around a ring."""

_EVERYBODY: Final = frozenset({"hello"})
"""Experiments in which every task talks to every other."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Who talks to whom.

    Attributes:
        links: Pairs of tasks.
        ring: Whether they are a ring, each task and the next one.
        words: What travels, in a sentence.
    """

    links: tuple[tuple[str, str], ...]
    ring: bool
    words: str


def topology_of(shape: ClusterShape) -> Topology:
    """What the program sends, by what its experiment is and by the jobs that there are."""
    tasks = [task.name for task in shape.tasks]
    by_job: dict[str, list[str]] = {}
    for task in shape.tasks:
        by_job.setdefault(task.job, []).append(task.name)
    workers = by_job.get("worker", [])
    if shape.experiment in _RINGS and len(workers) > 1:
        ring = tuple(zip(workers, [*workers[1:], workers[0]], strict=True))
        return Topology(ring, True, "The workers add up their gradients around a ring.")
    if shape.experiment in _EVERYBODY:
        pairs = [(one, two) for place, one in enumerate(tasks) for two in tasks[place + 1 :]]
        return Topology(tuple(pairs), False, "Every task talks to every other one.")
    if "client" in by_job:
        pairs = [(client, task) for client in by_job["client"] for task in tasks if task != client]
        return Topology(tuple(pairs), False, "A client trains on the servers of all other tasks.")
    if servers := by_job.get("ps", []):
        return _parameter_servers(by_job, servers)
    if len(tasks) == 1:
        return Topology((), False, "A single task trains: nothing leaves its node.")
    return Topology((), False, "What these tasks send to each other is not known.")


def _parameter_servers(by_job: dict[str, list[str]], servers: list[str]) -> Topology:
    trained = [
        task for job, tasks in by_job.items() if job not in {"ps", "evaluator"} for task in tasks
    ]
    links = [(server, task) for server in servers for task in trained]
    words = "Every worker fetches parameters from the parameter servers and sends gradients back."
    if "evaluator" in by_job:
        words += " The evaluator reads the checkpoints alone, and talks to nobody."
    return Topology(tuple(links), False, words)
