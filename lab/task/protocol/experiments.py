"""The registry of experiments.

It stands inside the image because a task agent must know an experiment by its name when the
environment is started with `LAB_EXPERIMENT` and no helper.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from lab.task.protocol.policy import FAIL, RESTARTS, OnFailure, Policy
from lab.task.protocol.program_flags import (
    TRAINING_FLAGS,
    ProgramFlag,
    amount,
    boolean,
    one_of,
    positive,
    rate,
)

if TYPE_CHECKING:
    from lab.task.protocol import RunSpec

__all__ = ["EXPERIMENTS", "Experiment", "ProgramFlag", "defaults", "hyperparameters", "misfit"]

MAX_SEED: Final = 2**31


@dataclass(frozen=True, slots=True)
class Experiment:
    """A named training program.

    Attributes:
        name: What `lab run` and `LAB_EXPERIMENT` call it.
        program: The program's file in `scripts/`.
        summary: One line for a list.
        jobs: Jobs that the cluster must have, each with at least one task.
        counts: How many tasks a job must have, where it is not as many as one likes.
        cluster: The shipped description that shows it best, if not any with these jobs does.
        services: Jobs that serve until every other job has ended.
        args: Default arguments, before the user's own, which win.
        has_data: Whether it reads the images.
        flags: Flags of the program beside the standard ones, by name without dashes.
        steps_add_up: Whether every local step is an update of its own, so that the workers' local
            steps add up to the global step. Then the run can do without a worker, too.
        policy: What becomes of its runs when a task fails, unless the user says otherwise.
        faults: What is done to each of its runs on purpose, as `lab.task.protocol.faults` reads it.
        results: Names of what each of its runs has to find; the program tells where it has to lie.
        expected: The outcome in words, for people.
        lesson: Its page in `docs/lessons/`, or "".
        tensorflow: The TensorFlow that its image has.
        gang: Whether all tasks start again together when one does: what they hold between them
            does not survive the end of one.
        joins_at_step: Whether its program looks itself whether the global step has come at which a
            task joins: the states that agents write tell it a second late.
    """

    name: str
    program: str
    summary: str
    jobs: tuple[str, ...] = ("ps", "worker")
    counts: Mapping[str, int] = field(default_factory=dict)
    cluster: str = ""
    services: tuple[str, ...] = ("ps",)
    args: tuple[str, ...] = ()
    has_data: bool = True
    flags: Mapping[str, ProgramFlag] = field(default_factory=dict)
    steps_add_up: bool = False
    gang: bool = False
    joins_at_step: bool = False
    policy: Policy = FAIL
    faults: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    expected: str = ""
    lesson: str = ""
    tensorflow: str = "2.21"


def misfit(wanted: Experiment, tasks: Mapping[str, int]) -> str:
    """Why an experiment cannot run on a cluster, or "".

    Args:
        wanted: The experiment.
        tasks: The number of tasks of each job of the cluster.

    Returns:
        What stands behind the experiment's name in a message: `needs the job 'ps'`.
    """
    for job in wanted.jobs:
        if not tasks.get(job):
            return f"needs the job {job!r}"
    for job, count in wanted.counts.items():
        if tasks[job] != count:
            return f"needs {count} of the job {job!r}, not {tasks[job]}"
    for job in tasks:
        if job not in wanted.jobs:
            return f"has no use for the job {job!r}"
    return ""


def registered(spec: RunSpec) -> Experiment | None:
    """The experiment that a run trains; None where it is a program of the user's own."""
    return None if spec.own else EXPERIMENTS.get(spec.experiment)


def with_seed(experiment: Experiment, argv: Sequence[str]) -> tuple[str, ...]:
    """The same words with a seed among them, drawn if none was given, so that it is recorded."""
    if "seed" not in experiment.flags or "seed" in hyperparameters(experiment, argv):
        return tuple(argv)
    import secrets  # noqa: PLC0415  (it is slow to import, and few commands need it)

    return (f"--seed={secrets.randbelow(MAX_SEED)}", *argv)


def defaults(experiment: Experiment) -> dict[str, Any]:
    """What the program takes where nothing is given, as far as it does not depend on the model."""
    return {
        name: flag.default for name, flag in experiment.flags.items() if flag.default is not None
    }


def hyperparameters(experiment: Experiment, argv: Sequence[str]) -> dict[str, Any]:
    """The program's flags among its words, with their values; the last one of a name counts."""
    found: dict[str, Any] = {}
    arguments = list(argv)
    for position, argument in enumerate(arguments):
        name, equals, raw = argument.removeprefix("--").partition("=")
        flag = experiment.flags.get(name)
        if flag is None or not argument.startswith("--"):
            continue
        if not equals:
            following = arguments[position + 1 : position + 2]
            raw = "true" if flag.is_switch or not following else following[0]
        try:
            value = flag.parse(raw)
        except (ValueError, ArgumentTypeError):  # behind `--`, unchecked: the program refuses it
            value = raw
        found[name] = value if isinstance(value, int | float | str | bool) else str(value)
    return found


_FLAGS: Final[Mapping[str, ProgramFlag]] = {
    **TRAINING_FLAGS,
    "towers": ProgramFlag("GPUs among which a batch is split (default: all)", positive),
    "compare_steps": ProgramFlag("steps that are compared with those of one process", positive),
    "steps_per_call": ProgramFlag("steps in one call", positive),
    "one_core": ProgramFlag("each task on one core: true or false", boolean),
    "fetch": ProgramFlag("steps that are told of: recorded or every", one_of("recorded", "every")),
    "packed": ProgramFlag("all parameters in one message: true or false", boolean),
    "replicas_to_aggregate": ProgramFlag("gradients in one update", positive),
    "cpu_replicas": ProgramFlag("replicas where there is no GPU", positive),
    "summary_every": ProgramFlag("steps from one summary, and one line, to the next", positive),
    "records": ProgramFlag("where to keep the TFRecords, as a task sees it"),
    "pause": ProgramFlag("seconds for which a worker holds its gradients", amount),
    "steps": ProgramFlag("steps of the gradient descent", positive),
}


def _flags(*names: str, **others: ProgramFlag) -> Mapping[str, ProgramFlag]:
    return {name: _FLAGS[name] for name in names} | others


_STEPS: Final = ("global_steps", "batch_size", "learning_rate", "seed", "record_every")
_TRAINING: Final = ("model", "epochs", *_STEPS)
_MNIST: Final = (
    *_TRAINING,
    "gpu_memory_fraction",
    "ps_strategy",
    "checkpoint_dir",
    "checkpoint_every",
    "log_device_placement",
)
_FAST: Final = ("epochs", *_STEPS, "towers", "steps_per_call", "one_core")

_ASYNC: Final = Experiment(
    name="async",
    program="mnist_async.py",
    summary="every worker updates the shared parameters on its own, at once",
    lesson="async.md",
    flags=_flags(*_MNIST, "towers"),
    steps_add_up=True,
    joins_at_step=True,
)
_SYNC: Final = Experiment(
    name="sync",
    program="mnist_sync.py",
    summary="one update of the shared parameters per round of gradients",
    lesson="sync.md",
    flags=_flags(*_MNIST, "towers", "replicas_to_aggregate"),
    gang=True,
)
_MLP: Final = ("--model=mlp", "--global_steps=50000")
_ASYNC_FAST: Final = Experiment(
    name="async-fast",
    program="async_fast.py",
    summary="async, several times quicker: a step is one message there and one back",
    lesson="speed.md",
    counts={"ps": 1},
    flags=_flags(*_FAST),
    steps_add_up=True,
    joins_at_step=True,
)
_MIRRORED: Final = Experiment(
    name="mirrored",
    program="all_reduce.py",
    summary="all-reduce between the cards of one host",
    lesson="all-reduce.md",
    jobs=("worker",),
    services=(),
    args=("--strategy=mirrored", "--model=mlp"),
    counts={"worker": 1},
    flags=_flags(
        *_TRAINING,
        strategy=ProgramFlag("mirrored or multiworker", one_of("mirrored", "multiworker")),
        cpu_replicas=_FLAGS["cpu_replicas"],
    ),
    results=("replicas compared", "replicas that differ"),
    expected="the replicas' parameters are the same, bit by bit",
)
_ESTIMATOR: Final = Experiment(
    name="estimator",
    program="estimator.py",
    summary="TensorFlow 1's Estimator: chief, ps, workers and evaluator by TF_CONFIG",
    lesson="estimator.md",
    jobs=("chief", "ps", "worker", "evaluator"),
    counts={"chief": 1, "evaluator": 1},
    cluster="clusters/estimator.yaml",
    args=("--checkpoint_every=2",),
    flags=_flags(
        *("model", *_STEPS, "checkpoint_dir", "checkpoint_every"),
        strategy=ProgramFlag("none, or mirrored", one_of("none", "mirrored")),
        cpu_replicas=_FLAGS["cpu_replicas"],
    ),
    steps_add_up=True,
    results=("RunConfig fields that differ", "checkpoints evaluated", "accuracy gained"),
    expected="RunConfig is as the cluster; the last checkpoint is no worse than the first",
    tensorflow="2.15",
)

EXPERIMENTS: Final[Mapping[str, Experiment]] = {
    experiment.name: experiment
    for experiment in (
        _ASYNC,
        _SYNC,
        replace(
            _ASYNC, name="async-mlp", summary="the blog's model, every worker on its own", args=_MLP
        ),
        replace(
            _SYNC,
            name="sync-mlp",
            summary="the blog's model, one update per round of gradients",
            args=_MLP,
        ),
        _ASYNC_FAST,
        replace(
            _ASYNC_FAST,
            name="async-unrolled",
            program="async_unrolled.py",
            summary="async, what makes it quicker one by one: many steps in a call, packed",
            flags=_flags(*_FAST, "gpu_memory_fraction", "log_device_placement", "fetch", "packed"),
        ),
        replace(
            _ASYNC_FAST,
            name="sync-fast",
            program="sync_fast.py",
            summary="sync, several times quicker: the last one of a round updates for all",
            steps_add_up=False,
            joins_at_step=False,
            gang=True,
        ),
        Experiment(
            name="hello",
            program="hello.py",
            summary="servers of one job, and a greeting that is evaluated on each",
            lesson="hello.md",
            jobs=("local",),
            services=(),
            has_data=False,
            results=("tasks that greeted",),
            expected="every task greets every task, and all of them end",
        ),
        Experiment(
            name="placement",
            program="device_placement.py",
            summary="where operations land: tf.device, soft placement, device setter",
            lesson="placement.md",
            has_data=False,
            results=(
                "where they should be",
                "elsewhere than logged",
                "refused without soft placement",
            ),
            expected="each operation on the device that was asked for; bytes for each strategy",
        ),
        Experiment(
            name="linear",
            program="linear.py",
            summary="a separate client trains a line on one of two servers",
            lesson="linear.md",
            jobs=("worker", "client"),
            services=("worker",),
            counts={"client": 1},
            has_data=False,
            flags=_flags(
                "steps", learning_rate=ProgramFlag("step width of the gradient descent", rate)
            ),
            results=("w", "b"),
            expected="w = 2 and b = 10, to 0.05 and 0.1",
        ),
        Experiment(
            name="in-graph",
            program="in_graph.py",
            summary="one client owns the graph, with a replica on each worker",
            lesson="in-graph.md",
            jobs=("ps", "worker", "client"),
            services=("ps", "worker"),
            counts={"client": 1},
            flags=_flags(*_TRAINING, "gpu_memory_fraction", "compare_steps"),
            results=("apart from one process",),
            expected="the parameters of one process with the joined batch, to 0.0001",
        ),
        Experiment(
            name="model-parallel",
            program="model_parallel.py",
            summary="one model cut across two tasks: activations travel",
            lesson="model-parallel.md",
            jobs=("worker", "client"),
            services=("worker",),
            counts={"worker": 2, "client": 1},
            flags=_flags("epochs", *_STEPS, "gpu_memory_fraction", "compare_steps"),
            results=("apart from one process",),
            expected="the parameters of the same model in one process, to 0.0001",
        ),
        Experiment(
            name="towers",
            program="towers.py",
            summary="one host, several cards: gradients averaged by hand",
            lesson="towers.md",
            jobs=("worker",),
            services=(),
            counts={"worker": 1},
            flags=_flags(
                *(*_STEPS, "checkpoint_dir"),
                towers=ProgramFlag("towers where there is no GPU", positive),
                summary_every=_FLAGS["summary_every"],
                records=_FLAGS["records"],
            ),
            results=("apart from the joined batch", "examples a second"),
            expected="the averaged gradient is the joined batch's, to 0.0001 of its size",
        ),
        _MIRRORED,
        replace(
            _MIRRORED,
            name="multiworker",
            summary="all-reduce between the workers: no parameter servers",
            counts={},
            cluster="clusters/workers.yaml",
            args=("--strategy=multiworker", "--model=mlp"),
            gang=True,
            expected="all workers end with the same parameters, bit by bit",
        ),
        Experiment(
            name="coordinator",
            program="coordinator.py",
            summary="TensorFlow 2's parameter servers: a chief hands out steps",
            lesson="coordinator.md",
            jobs=("chief", "ps", "worker"),
            services=("ps", "worker"),
            policy=Policy(OnFailure.RESTART, RESTARTS),
            counts={"chief": 1},
            flags=_flags(*_TRAINING),
            results=("steps counted",),
            expected="every step is counted, also where a worker dies",
        ),
        Experiment(
            name="evaluator",
            program="evaluator.py",
            summary="a task that tests each checkpoint while the others train",
            lesson="evaluator.md",
            jobs=("ps", "worker", "evaluator"),
            args=("--checkpoint_every=2",),
            flags=_flags(*_MNIST),
            steps_add_up=True,
            counts={"evaluator": 1},
            results=("checkpoints evaluated", "accuracy gained"),
            expected="the accuracy of the last checkpoint is above the first one's",
        ),
        Experiment(
            name="staleness",
            program="staleness.py",
            summary="too many cooks: gradients that come late, and what they do",
            lesson="staleness.md",
            args=("--global_steps=300", "--learning_rate=1"),
            flags=_flags(*_TRAINING, "gpu_memory_fraction", "pause"),
            steps_add_up=True,
            results=("staleness", "test loss"),
            expected="among n workers a gradient is nearly n - 1 updates old when it arrives",
        ),
        _ESTIMATOR,
        replace(
            _ESTIMATOR,
            name="estimator-mirrored",
            summary="an Estimator with a strategy: all-reduce between the cards of one host",
            jobs=("worker",),
            services=(),
            counts={"worker": 1},
            cluster="",
            args=("--strategy=mirrored", "--checkpoint_every=2"),
            steps_add_up=False,
            results=("RunConfig fields that differ", "replicas built", "checkpoints evaluated"),
            expected="every card builds the model, and accuracy is that of the joined batch",
        ),
        Experiment(
            name="horovod",
            program="horovod_ring.py",
            summary="Horovod's ring all-reduce between the workers: no parameter servers",
            lesson="horovod.md",
            jobs=("worker",),
            cluster="clusters/workers.yaml",
            services=(),
            args=("--model=mlp",),
            flags=_flags(*_TRAINING),
            gang=True,
            results=("ranks compared", "ranks that differ"),
            expected="all ranks end with the same parameters, bit by bit",
            tensorflow="2.15",
        ),
    )
}
