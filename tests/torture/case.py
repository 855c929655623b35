"""One run of the harness, drawn from a seed; nothing is started here."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

LOCAL: Final = "local"
COMPOSE: Final = "compose"
BACKENDS: Final = (LOCAL, COMPOSE)
PS_NODE: Final = "tf1"
WORKER_NODES: Final = ("tf2", "tf3")

PAUSE_S: Final = 3.0
"""A pause that every training survives, in seconds."""

_HOUR_S: Final = 3600.0
# Few workers more often: eight on two cores need half a minute before they train.
_WORKERS: Final = {2: 4, 3: 4, 4: 3, 5: 2, 6: 1, 7: 1, 8: 1}
_PS: Final = {1: 4, 2: 2, 3: 1}


class Fault(StrEnum):
    """The fault of a run."""

    NONE = "none"
    KILL = "kill"  # the program gets SIGKILL
    FREEZE = "freeze"  # the program gets SIGSTOP
    PAUSE = "pause"  # the same for `PAUSE_S`
    AGENT = "agent"  # the agent or its container is killed
    HELPER = "helper"  # the client is killed; another command collects the run
    ROOM = "room"  # the run volume is full for `PAUSE_S`
    READ_ONLY = "read-only"  # the run volume becomes read-only
    LATE = "late"  # a task starts late
    NODE_CLOCK = "node-clock"  # the clock of all processes of a node is stepped by an hour


_OF_PROCESSES: Final = frozenset({Fault.ROOM, Fault.READ_ONLY, Fault.NODE_CLOCK})
"""The engine's disk is the host's; a container takes no variable of the harness."""

FAULTS_ON: Final[dict[str, tuple[Fault, ...]]] = {
    LOCAL: tuple(Fault),
    COMPOSE: tuple(fault for fault in Fault if fault not in _OF_PROCESSES),
}
UNTIMED: Final = frozenset({Fault.NONE, Fault.LATE})
"""Faults without a moment: there is none, or the run starts with it."""

_ON_ANY_TASK: Final = frozenset({Fault.KILL, Fault.FREEZE, Fault.PAUSE, Fault.AGENT, Fault.LATE})


class Policy(StrEnum):
    """The policy for a run that loses a task."""

    FAIL = "fail"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    Attributes:
        experiment: `async` or `sync`.
        target: The task or node of the fault, or "".
        after_s: The moment of the fault: seconds after the submission of the run; or
        at_step: as soon as a collected record has this global step.
        amount_s: The delay of a start, or the change of a clock.
    """

    seed: int
    backend: str
    experiment: str
    workers: int
    ps: int
    steps: int
    fault: Fault = Fault.NONE
    target: str = ""
    after_s: float | None = None
    at_step: int | None = None
    amount_s: float = 0.0
    policy: Policy = Policy.FAIL

    @property
    def project(self) -> str:
        """A name that no other environment has."""
        return f"torture-{self.fault}-{self.seed}"

    @property
    def tasks(self) -> list[str]:
        """All tasks, in the cluster's order."""
        return [*(f"ps-{i}" for i in range(self.ps)), *self.worker_tasks]

    @property
    def worker_tasks(self) -> list[str]:
        """The tasks that train."""
        return [f"worker-{i}" for i in range(self.workers)]

    def node(self, task: str) -> str:
        """The node of a task: parameter servers are on one, workers on two others."""
        job, _, index = task.partition("-")
        return PS_NODE if job == "ps" else WORKER_NODES[int(index) % len(WORKER_NODES)]

    def tasks_on(self, place: str) -> list[str]:
        """The tasks of a node; a task is its own place."""
        return [task for task in self.tasks if place in {task, self.node(task)}]

    def config(self) -> str:
        """The cluster's config."""
        jobs = [
            f"  {job}: {{on: [{', '.join(self.node(f'{job}-{i}') for i in range(size))}], gpus: 0}}"
            for job, size in (("ps", self.ps), ("worker", self.workers))
        ]
        nodes = [f"  {name}: {{}}" for name in (PS_NODE, *WORKER_NODES)]
        head = ["version: 1", f"name: {self.project}", "port: 2222"]
        return "\n".join([*head, "nodes:", *nodes, "jobs:", *jobs, ""])

    def line(self) -> str:
        """What differs from the defaults, in a line."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return " ".join(
            f"{name}={value}" for name, value in values.items() if value or name == "seed"
        )


def draw(seed: int) -> Case:
    """The case of a seed, always the same."""
    rng = random.Random(seed)  # noqa: S311  (nothing is secret)
    backend = rng.choice(BACKENDS)
    fault = rng.choice(FAULTS_ON[backend])
    experiment = rng.choice(("async", "sync"))
    (workers,) = rng.choices([*_WORKERS], [*_WORKERS.values()])
    (ps,) = rng.choices([*_PS], [*_PS.values()])
    # A synchronous update waits for all workers, and takes so much longer.
    steps = rng.randrange(300, 1500) // (workers if experiment == "sync" else 1)
    after_s = round(rng.uniform(0, 15), 1) if rng.random() < 0.5 else None
    timed = fault not in UNTIMED
    return Case(
        seed=seed,
        backend=backend,
        experiment=experiment,
        workers=workers,
        ps=ps,
        steps=steps,
        fault=fault,
        target=_target(rng, fault, workers, ps),
        after_s=after_s if timed else None,
        at_step=rng.randint(1, int(0.8 * steps)) if timed and after_s is None else None,
        amount_s=_amount(rng, fault),
        policy=rng.choice([*Policy]),
    )


def _target(rng: random.Random, fault: Fault, workers: int, ps: int) -> str:
    if fault is Fault.NODE_CLOCK:
        return rng.choice((PS_NODE, *WORKER_NODES))
    if fault not in _ON_ANY_TASK:
        return ""
    return rng.choice([*(f"ps-{i}" for i in range(ps)), *(f"worker-{i}" for i in range(workers))])


def _amount(rng: random.Random, fault: Fault) -> float:
    if fault is Fault.LATE:
        return round(rng.uniform(0, 20), 1)
    return rng.choice((-_HOUR_S, _HOUR_S)) if fault is Fault.NODE_CLOCK else 0.0
