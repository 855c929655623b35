"""One run of the harness, drawn from a seed; nothing is started here."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LOCAL: Final = "local"
COMPOSE: Final = "compose"
BACKENDS: Final = (LOCAL, COMPOSE)
FAIL: Final = "fail"
RESTART: Final = "restart"
PS_NODE: Final = "tf1"
WORKER_NODES: Final = ("tf2", "tf3")

PAUSE_S: Final = 3.0
"""A pause that every training survives, in seconds."""

_HOURS_S: Final = (-3600.0, 3600.0)


class Fault(StrEnum):
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


OF_PROCESSES: Final = frozenset({Fault.ROOM, Fault.READ_ONLY, Fault.NODE_CLOCK})
"""The engine's disk is the host's; a container takes no variable of the harness."""

UNTIMED: Final = frozenset({Fault.NONE, Fault.LATE})
"""Faults without a moment: there is none, or the run starts with it."""

_OF_A_TASK: Final = frozenset({Fault.KILL, Fault.FREEZE, Fault.PAUSE, Fault.AGENT, Fault.LATE})


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    Attributes:
        experiment: `async` or `sync`.
        policy: The policy for a run that loses a task: `fail` or `restart`.
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
    fault: Fault
    policy: str
    target: str
    after_s: float | None
    at_step: int | None
    amount_s: float

    @property
    def project(self) -> str:
        """A name that no other environment has."""
        return f"torture-{self.fault}-{self.seed}"

    @property
    def worker_tasks(self) -> list[str]:
        return _tasks("worker", self.workers)

    def workers_on(self, target: str) -> list[str]:
        """The workers that a fault of a task or node hits."""
        return [task for task in self.worker_tasks if target in {task, _node(task)}]

    def config(self) -> str:
        nodes = ", ".join(f"{node}: {{}}" for node in (PS_NODE, *WORKER_NODES))
        jobs = [
            f"  {job}: {{on: [{', '.join(map(_node, _tasks(job, size)))}], gpus: 0}}\n"
            for job, size in (("ps", self.ps), ("worker", self.workers))
        ]
        head = f"version: 1\nname: {self.project}\nport: 2222\nnodes: {{{nodes}}}\njobs:\n"
        return head + "".join(jobs)


def draw(seed: int) -> Case:
    """The case of a seed, always the same."""
    rng = random.Random(seed)  # noqa: S311  (nothing is secret)
    backend = rng.choice(BACKENDS)
    fault = rng.choice([each for each in Fault if backend == LOCAL or each not in OF_PROCESSES])
    experiment = rng.choice(("async", "sync"))
    # Few workers more often: eight on two cores need half a minute before they train.
    (workers,) = rng.choices(range(2, 9), (4, 4, 3, 2, 1, 1, 1))
    (ps,) = rng.choices(range(1, 4), (4, 2, 1))
    # A synchronous update waits for all workers, and takes so much longer.
    steps = rng.randrange(300, 1500) // (workers if experiment == "sync" else 1)
    timed, by_step = fault not in UNTIMED, rng.random() < 0.5
    nodes, tasks = [PS_NODE, *WORKER_NODES], [*_tasks("ps", ps), *_tasks("worker", workers)]
    targets = {Fault.NODE_CLOCK: nodes, **dict.fromkeys(_OF_A_TASK, tasks)}
    amounts = {Fault.LATE: round(rng.uniform(0, 20), 1), Fault.NODE_CLOCK: rng.choice(_HOURS_S)}
    return Case(
        seed=seed,
        backend=backend,
        experiment=experiment,
        workers=workers,
        ps=ps,
        steps=steps,
        fault=fault,
        policy=rng.choice((FAIL, RESTART)),
        target=rng.choice(targets.get(fault, [""])),
        after_s=round(rng.uniform(0, 15), 1) if timed and not by_step else None,
        at_step=rng.randint(1, int(0.8 * steps)) if timed and by_step else None,
        amount_s=amounts.get(fault, 0.0),
    )


def _tasks(job: str, size: int) -> list[str]:
    return [f"{job}-{index}" for index in range(size)]


def _node(task: str) -> str:
    """The node of a task: parameter servers are on one, workers on two others."""
    job, _, index = task.partition("-")
    return PS_NODE if job == "ps" else WORKER_NODES[int(index) % len(WORKER_NODES)]
