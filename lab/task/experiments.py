"""The registry of experiments.

It stands inside the image because a task agent must know an experiment by its name when the
environment is started with `LAB_EXPERIMENT` and no helper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from lab.task.flags import boolean, one_of, positive, rate, share, whole


@dataclass(frozen=True, slots=True)
class ProgramFlag:
    """One flag of a training program, so that it can be checked before anything starts.

    Attributes:
        help: What it does, in one line.
        parse: Reads a value as the program will; raises ArgumentTypeError.
        is_switch: Whether it may stand without a value.
    """

    help: str
    parse: Callable[[str], object] = str
    is_switch: bool = False


@dataclass(frozen=True, slots=True)
class Experiment:
    """A named training program.

    Attributes:
        name: What `lab run` and `LAB_EXPERIMENT` call it.
        program: The program's file in `scripts/`.
        summary: One line for a list.
        jobs: Jobs that the cluster must have, each with at least one task.
        services: Jobs that serve until every other job has ended.
        args: Default arguments, before the user's own, which win.
        flags: Flags of the program beside the standard ones, by name without dashes.
        steps_add_up: Whether every local step is an update of its own, so that the workers' local
            steps add up to the global step. Then the run can do without a worker, too.
        faults: What is done to each of its runs on purpose, as `lab.task.faults` reads it.
        gang: Whether all tasks start again together when one does: what they hold between them
            does not survive the end of one.
    """

    name: str
    program: str
    summary: str
    jobs: tuple[str, ...]
    services: tuple[str, ...] = ("ps",)
    args: tuple[str, ...] = ()
    flags: Mapping[str, ProgramFlag] = field(default_factory=dict)
    steps_add_up: bool = False
    gang: bool = False
    faults: tuple[str, ...] = ()


_MNIST_FLAGS: Final[Mapping[str, ProgramFlag]] = {
    "model": ProgramFlag("the model: softmax or mlp", one_of("softmax", "mlp")),
    "epochs": ProgramFlag("passes over the training images", positive),
    "batch_size": ProgramFlag("images in a batch", positive),
    "learning_rate": ProgramFlag("step width of the gradient descent", rate),
    "seed": ProgramFlag("seed of initial weights and batches (default: drawn)", whole),
    "global_steps": ProgramFlag("stop at this global step, not by epochs", whole),
    "ps_strategy": ProgramFlag(
        "variables on several ps: round_robin or greedy", one_of("round_robin", "greedy")
    ),
    "gpu_memory_fraction": ProgramFlag("share of each GPU's memory that a task takes", share),
    "record_every": ProgramFlag("local steps from one record to the next", positive),
    "checkpoint_dir": ProgramFlag("where checkpoints are kept, as a task sees it"),
    "checkpoint_every": ProgramFlag("seconds from one checkpoint to the next", rate),
    "log_device_placement": ProgramFlag("print where each operation runs", boolean, is_switch=True),
}
_SYNC_FLAGS: Final[Mapping[str, ProgramFlag]] = {
    "replicas_to_aggregate": ProgramFlag("gradients in one update", positive),
}

EXPERIMENTS: Final[Mapping[str, Experiment]] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="async",
            program="mnist_async.py",
            summary="every worker updates the shared parameters on its own, at once",
            jobs=("ps", "worker"),
            flags=_MNIST_FLAGS,
            steps_add_up=True,
        ),
        Experiment(
            name="sync",
            program="mnist_sync.py",
            summary="one update of the shared parameters per round of gradients",
            jobs=("ps", "worker"),
            flags={**_MNIST_FLAGS, **_SYNC_FLAGS},
            gang=True,
        ),
    )
}
