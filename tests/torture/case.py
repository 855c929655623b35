"""One run of the harness, drawn from a seed; nothing is started here."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LOCAL: Final = "local"
COMPOSE: Final = "compose"
BACKENDS: Final = (LOCAL, COMPOSE)
EXPERIMENTS: Final = ("async", "sync")

PS_NODE: Final = "tf1"
WORKER_NODES: Final = ("tf2", "tf3")

PAUSE_S: Final = 3.0
"""A pause that every training survives, in seconds."""

_LATEST_S: Final = 15.0
_LATEST_START_S: Final = 20.0
# Few workers more often: eight on two cores need half a minute before they train.
_WORKERS: Final = {2: 4, 3: 4, 4: 3, 5: 2, 6: 1, 7: 1, 8: 1}
_PS: Final = {1: 4, 2: 2, 3: 1}
_HOUR_S: Final = 3600.0
_CLOCK_STEPS_S: Final = (-_HOUR_S, -30.0, 30.0, _HOUR_S)


class Fault(StrEnum):
    """The fault of a run."""

    NONE = "none"
    KILL = "kill"
    FREEZE = "freeze"
    PAUSE = "pause"
    AGENT = "agent"
    ANCHOR = "anchor"
    ENGINE = "engine"
    MEMORY = "memory"
    HELPER = "helper"
    DISK = "disk"
    ROOM = "room"
    READ_ONLY = "read-only"
    LATE = "late"
    CLOCK = "clock"
    NODE_CLOCK = "node-clock"


FAULTS_ON: Final[dict[str, tuple[Fault, ...]]] = {
    # Main memory has no limit there, and there is no engine and no pause container.
    LOCAL: tuple(f for f in Fault if f not in {Fault.ANCHOR, Fault.ENGINE, Fault.MEMORY}),
    # The engine's own disk is the host's; a container takes no variable of the harness.
    COMPOSE: tuple(
        f for f in Fault if f not in {Fault.DISK, Fault.ROOM, Fault.CLOCK, Fault.NODE_CLOCK}
    ),
}
"""Which faults there are on a backend."""

NEW_FROM: Final = 10_000
"""Seeds from here on draw from all faults; those below from the faults that there were then."""

_NEW: Final = frozenset({Fault.ROOM, Fault.READ_ONLY, Fault.NODE_CLOCK})

HARMS: Final = ("litter", "wipe", "links", "names", "forge", "steal", "vanish", "confuse")
"""The harms of `tests/hostile/programs/harm.py`."""

ALTERS: Final = frozenset({"forge", "steal", "vanish"})
"""Harms to records, after which `lab run` fails."""

HOSTILE: Final = "hostile"
"""The experiment of such a program."""

HOSTILE_S: Final = 12
"""Time that the program continues after its harm, in seconds."""

HOSTILE_RUNS: Final = 20
_HOSTILE_FAULTS: Final = (
    *(Fault.NONE, Fault.KILL, Fault.FREEZE, Fault.PAUSE, Fault.AGENT, Fault.HELPER),
    *(Fault.DISK, Fault.ROOM, Fault.READ_ONLY),
)

UNTIMED: Final = frozenset({Fault.NONE, Fault.LATE})
"""Faults without a moment: there is none, or the run starts with it."""

_ON_ANY_TASK: Final = frozenset(
    {Fault.KILL, Fault.FREEZE, Fault.PAUSE, Fault.AGENT, Fault.MEMORY, Fault.LATE, Fault.CLOCK}
)


class Policy(StrEnum):
    """The policy for a run that loses a task."""

    FAIL = "fail"
    RESTART = "restart"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class When:
    """The moment of a fault; one of the two, or none.

    Attributes:
        after_s: Seconds after the submission of the run.
        at_step: As soon as a collected record has this global step.
    """

    after_s: float | None = None
    at_step: int | None = None

    def __str__(self) -> str:
        if self.after_s is not None:
            return f"after {self.after_s:.1f} s"
        return "" if self.at_step is None else f"at step {self.at_step}"


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    Attributes:
        seed: What it was drawn from.
        backend: `local` or `compose`.
        experiment: `async`, `sync` or `hostile`.
        workers: The number of workers.
        ps: The number of parameter servers.
        steps: The requested global steps.
        replicas: Gradients in one update, where that is not one of each worker.
        fault: Its fault.
        target: The task or node of the fault, or "".
        when: The moment of the fault.
        amount_s: The delay of a start, or the change of a clock.
        follow_up: How a run of a killed client is collected: `attach` or `collect`.
        policy: Its policy.
        harm: The harm of its program, if it is a hostile one.
    """

    seed: int
    backend: str
    experiment: str
    workers: int
    ps: int
    steps: int
    replicas: int | None = None
    fault: Fault = Fault.NONE
    target: str = ""
    when: When = When()
    amount_s: float = 0.0
    follow_up: str = ""
    policy: Policy = Policy.FAIL
    harm: str = ""

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

    def tasks_on(self, place: str) -> list[str]:
        """The tasks of a node; a task is its own place."""
        if place == PS_NODE:
            return [task for task in self.tasks if task.startswith("ps")]
        if place in WORKER_NODES:
            return [t for t in self.worker_tasks if _node(int(t.rpartition("-")[2])) == place]
        return [place] if place in self.tasks else []

    def line(self) -> str:
        """The case in a line."""
        gradients = f" {self.replicas} gradients" if self.replicas else ""
        arguments = [
            f"seed {self.seed}: {self.experiment} on {self.backend}, {self.workers} workers,"
            f" {self.ps} ps, {self.steps} steps{gradients}, {self.policy}:",
            self.harm,
            str(self.fault),
            self.target,
            f"{self.amount_s:+.1f} s" if self.amount_s else "",
            str(self.when),
            f"then {self.follow_up}" if self.follow_up else "",
        ]
        return " ".join(filter(None, arguments))


def draw(seed: int) -> Case:
    """The case of a seed, always the same.

    Each property has a generator of its own, so that a new property leaves the others as they are.
    """
    backend = _random(seed, "backend").choice(BACKENDS)
    experiment = _random(seed, "experiment").choice(EXPERIMENTS)
    workers = _weighted(_random(seed, "workers"), _WORKERS)
    ps = _weighted(_random(seed, "ps"), _PS)
    faults = [f for f in FAULTS_ON[backend] if seed >= NEW_FROM or f not in _NEW]
    fault = _random(seed, "fault").choice(faults)
    # A synchronous update waits for all workers, and takes so much longer.
    steps = _random(seed, "steps").randrange(300, 1500) // (workers if experiment == "sync" else 1)
    policies = [p for p in Policy if p is not Policy.CONTINUE or experiment == "async"]
    return Case(
        seed=seed,
        backend=backend,
        experiment=experiment,
        workers=workers,
        ps=ps,
        steps=steps,
        fault=fault,
        target=_target(_random(seed, "target"), fault, workers, ps),
        when=When() if fault in UNTIMED else _moment(_random(seed, "when"), steps),
        amount_s=_amount(_random(seed, "amount"), fault),
        follow_up=(
            _random(seed, "follow up").choice(("attach", "collect"))
            if fault is Fault.HELPER
            else ""
        ),
        policy=_random(seed, "policy").choice(policies),
    )


CLEAN_END: Final[tuple[tuple[int, int | None, int], ...]] = (
    (3, None, 100),
    (3, 2, 100),
    (2, None, 25),
    (5, None, 25),
    (8, None, 25),
)
"""Workers, gradients in one update (None: of each worker), and how many such runs there are."""

CLEAN_END_RUNS: Final = sum(count for _, _, count in CLEAN_END)


def clean_end(seed: int, backend: str) -> Case:
    """The case of a seed among those that look how a synchronous training ends.

    Raises:
        IndexError: There are `CLEAN_END_RUNS`.
    """
    settings = [(workers, replicas) for workers, replicas, n in CLEAN_END for _ in range(n)]
    workers, replicas = settings[seed]
    # The end counts: fewer steps give more ends.
    steps = _random(seed, "clean end").randrange(20, 60)
    return Case(seed, backend, "sync", workers, 1, steps, replicas)


def hostile(seed: int, backend: str) -> Case:
    """The case of a seed among those whose program does harm."""
    faults = [f for f in _HOSTILE_FAULTS if f in FAULTS_ON[backend]]
    fault = faults[seed % len(faults)]
    moment = round(_random(seed, "hostile when").uniform(0, HOSTILE_S / 2), 1)
    return Case(
        seed,
        backend,
        HOSTILE,
        workers=2,
        ps=1,
        steps=0,
        fault=fault,
        target=_target(_random(seed, "hostile target"), fault, workers=2, ps=1),
        when=When() if fault in UNTIMED else When(after_s=moment),
        follow_up="attach" if fault is Fault.HELPER else "",
        harm=_random(seed, "harm").choice(HARMS),
    )


def description(case: Case) -> str:
    """The cluster's config: parameter servers on one node, workers on two others."""
    on = ", ".join(_node(index) for index in range(case.workers))
    nodes = "\n".join(f"  {name}: {{}}" for name in (PS_NODE, *WORKER_NODES))
    return f"""\
version: 1
name: {case.project}
nodes:
{nodes}
jobs:
  ps: {{on: [{", ".join([PS_NODE] * case.ps)}], gpus: 0}}
  worker: {{on: [{on}], gpus: 0}}
port: 2222
"""


def _node(worker: int) -> str:
    return WORKER_NODES[worker % len(WORKER_NODES)]


def _target(generator: random.Random, fault: Fault, workers: int, ps: int) -> str:
    if fault in {Fault.ANCHOR, Fault.NODE_CLOCK}:
        return generator.choice((PS_NODE, *WORKER_NODES))
    if fault not in _ON_ANY_TASK:
        return ""
    return generator.choice(
        [*(f"ps-{i}" for i in range(ps)), *(f"worker-{i}" for i in range(workers))]
    )


def _moment(generator: random.Random, steps: int) -> When:
    if generator.random() < 0.5:
        return When(after_s=round(generator.uniform(0, _LATEST_S), 1))
    return When(at_step=generator.randint(1, max(1, int(0.8 * steps))))


def _amount(generator: random.Random, fault: Fault) -> float:
    if fault is Fault.LATE:
        return round(generator.uniform(0, _LATEST_START_S), 1)
    if fault is Fault.NODE_CLOCK:
        return generator.choice((-_HOUR_S, _HOUR_S))
    return generator.choice(_CLOCK_STEPS_S) if fault is Fault.CLOCK else 0.0


def _weighted(generator: random.Random, weights: dict[int, int]) -> int:
    return generator.choices(list(weights), list(weights.values()))[0]


def _random(seed: int, what: str) -> random.Random:
    return random.Random(f"{seed} {what}")  # noqa: S311  (nothing is secret)


def wanted(
    case: Case, backends: Sequence[str], faults: Sequence[Fault], policies: Sequence[Policy]
) -> bool:
    """Whether a case was requested."""
    return case.backend in backends and case.fault in faults and case.policy in policies
