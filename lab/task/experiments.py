"""The registry of experiments.

It stands inside the image because a task agent must know an experiment by its name when the
environment is started with `LAB_EXPERIMENT` and no helper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lab.task.flags import amount, boolean, one_of, positive, rate, share, whole
from lab.task.policy import FAIL, RESTARTS, OnFailure, Policy

if TYPE_CHECKING:
    from lab.task.protocol import RunSpec


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
        counts: How many tasks a job must have, where it is not as many as one likes.
        cluster: The shipped description that shows it best, if not any with these jobs does.
        services: Jobs that serve until every other job has ended.
        args: Default arguments, before the user's own, which win.
        has_data: Whether it reads the images.
        flags: Flags of the program beside the standard ones, by name without dashes.
        steps_add_up: Whether every local step is an update of its own, so that the workers' local
            steps add up to the global step. Then the run can do without a worker, too.
        policy: What becomes of its runs when a task fails, unless the user says otherwise.
        faults: What is done to each of its runs on purpose, as `lab.task.faults` reads it.
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
    jobs: tuple[str, ...]
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


Flags = Mapping[str, ProgramFlag]

_MODEL: Final[Flags] = {
    "model": ProgramFlag("the model: softmax or mlp", one_of("softmax", "mlp")),
}
_STEPS: Final[Flags] = {
    "global_steps": ProgramFlag("stop at this global step, not by epochs", whole),
    "batch_size": ProgramFlag("images in a batch", positive),
    "learning_rate": ProgramFlag("step width of the gradient descent", rate),
    "seed": ProgramFlag("seed of initial weights and batches (default: drawn)", whole),
    "record_every": ProgramFlag("local steps from one record to the next", positive),
}
_TRAINING: Final[Flags] = {
    **_MODEL,
    "epochs": ProgramFlag("passes over the training images", positive),
    **_STEPS,
}
_SERVER: Final[Flags] = {
    "gpu_memory_fraction": ProgramFlag("share of each GPU's memory that a task takes", share),
}
_MNIST_FLAGS: Final[Flags] = {
    **_TRAINING,
    **_SERVER,
    "ps_strategy": ProgramFlag(
        "variables on several ps: round_robin or greedy", one_of("round_robin", "greedy")
    ),
    "checkpoint_dir": ProgramFlag("where checkpoints are kept, as a task sees it"),
    "checkpoint_every": ProgramFlag("seconds from one checkpoint to the next", rate),
    "log_device_placement": ProgramFlag("print where each operation runs", boolean, is_switch=True),
}
_SPLIT: Final[Flags] = {
    "towers": ProgramFlag("GPUs among which a batch is split (default: all)", positive),
}
_COMPARED: Final[Flags] = {
    "compare_steps": ProgramFlag("steps that are compared with those of one process", positive),
}
_FAST_FLAGS: Final[Flags] = {
    **{name: flag for name, flag in _TRAINING.items() if name != "model"},
    **_SPLIT,
    "steps_per_call": ProgramFlag("steps in one call", positive),
    "one_core": ProgramFlag("each task on one core: true or false", boolean),
}
_UNROLLED_FLAGS: Final[Flags] = {
    **_FAST_FLAGS,
    **_SERVER,
    "log_device_placement": _MNIST_FLAGS["log_device_placement"],
    "fetch": ProgramFlag("steps that are told of: recorded or every", one_of("recorded", "every")),
    "packed": ProgramFlag("all parameters in one message: true or false", boolean),
}
_SYNC_FLAGS: Final[Flags] = {
    "replicas_to_aggregate": ProgramFlag("gradients in one update", positive),
}
_ALL_REDUCE_FLAGS: Final[Flags] = {
    "strategy": ProgramFlag("mirrored or multiworker", one_of("mirrored", "multiworker")),
    "cpu_replicas": ProgramFlag("replicas where there is no GPU", positive),
}
_TOWERS_FLAGS: Final[Flags] = {
    "checkpoint_dir": _MNIST_FLAGS["checkpoint_dir"],
    "towers": ProgramFlag("towers where there is no GPU", positive),
    "summary_every": ProgramFlag("steps from one summary, and one line, to the next", positive),
    "records": ProgramFlag("where to keep the TFRecords, as a task sees it"),
}
_STALENESS_FLAGS: Final[Flags] = {
    "pause": ProgramFlag("seconds for which a worker holds its gradients", amount),
}
_ESTIMATOR_FLAGS: Final[Flags] = {
    "checkpoint_dir": _MNIST_FLAGS["checkpoint_dir"],
    "checkpoint_every": _MNIST_FLAGS["checkpoint_every"],
    "strategy": ProgramFlag("none, or mirrored", one_of("none", "mirrored")),
    "cpu_replicas": ProgramFlag("replicas where there is no GPU", positive),
}

EXPERIMENTS: Final[Mapping[str, Experiment]] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="async",
            program="mnist_async.py",
            summary="every worker updates the shared parameters on its own, at once",
            lesson="async.md",
            jobs=("ps", "worker"),
            flags={**_MNIST_FLAGS, **_SPLIT},
            steps_add_up=True,
            joins_at_step=True,
        ),
        Experiment(
            name="sync",
            program="mnist_sync.py",
            summary="one update of the shared parameters per round of gradients",
            lesson="sync.md",
            jobs=("ps", "worker"),
            flags={**_MNIST_FLAGS, **_SPLIT, **_SYNC_FLAGS},
            gang=True,
        ),
        Experiment(
            name="async-mlp",
            program="mnist_async.py",
            summary="the blog's model, every worker on its own",
            lesson="async.md",
            jobs=("ps", "worker"),
            args=("--model=mlp", "--global_steps=50000"),
            flags={**_MNIST_FLAGS, **_SPLIT},
            steps_add_up=True,
            joins_at_step=True,
        ),
        Experiment(
            name="sync-mlp",
            program="mnist_sync.py",
            summary="the blog's model, one update per round of gradients",
            lesson="sync.md",
            jobs=("ps", "worker"),
            args=("--model=mlp", "--global_steps=50000"),
            flags={**_MNIST_FLAGS, **_SPLIT, **_SYNC_FLAGS},
            gang=True,
        ),
        Experiment(
            name="async-fast",
            program="async_fast.py",
            summary="async, several times quicker: a step is one message there and one back",
            lesson="speed.md",
            jobs=("ps", "worker"),
            counts={"ps": 1},
            flags=_FAST_FLAGS,
            steps_add_up=True,
            joins_at_step=True,
        ),
        Experiment(
            name="async-unrolled",
            program="async_unrolled.py",
            summary="async, what makes it quicker one by one: many steps in a call, packed",
            lesson="speed.md",
            jobs=("ps", "worker"),
            counts={"ps": 1},
            flags=_UNROLLED_FLAGS,
            steps_add_up=True,
            joins_at_step=True,
        ),
        Experiment(
            name="sync-fast",
            program="sync_fast.py",
            summary="sync, several times quicker: the last one of a round updates for all",
            lesson="speed.md",
            jobs=("ps", "worker"),
            counts={"ps": 1},
            flags=_FAST_FLAGS,
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
            jobs=("ps", "worker"),
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
            flags={
                "steps": ProgramFlag("steps of the gradient descent", positive),
                "learning_rate": ProgramFlag("step width of the gradient descent", rate),
            },
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
            flags={**_TRAINING, **_SERVER, **_COMPARED},
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
            flags={
                "epochs": _TRAINING["epochs"],
                **_STEPS,
                **_SERVER,
                **_COMPARED,
            },
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
            flags={**_STEPS, **_TOWERS_FLAGS},
            results=("apart from the joined batch", "examples a second"),
            expected="the averaged gradient is the joined batch's, to 0.0001 of its size",
        ),
        Experiment(
            name="mirrored",
            program="all_reduce.py",
            summary="all-reduce between the cards of one host",
            lesson="all-reduce.md",
            jobs=("worker",),
            services=(),
            args=("--strategy=mirrored", "--model=mlp"),
            counts={"worker": 1},
            flags={**_TRAINING, **_ALL_REDUCE_FLAGS},
            results=("replicas compared", "replicas that differ"),
            expected="the replicas' parameters are the same, bit by bit",
        ),
        Experiment(
            name="multiworker",
            program="all_reduce.py",
            summary="all-reduce between the workers: no parameter servers",
            lesson="all-reduce.md",
            jobs=("worker",),
            cluster="clusters/workers.yaml",
            services=(),
            args=("--strategy=multiworker", "--model=mlp"),
            flags={**_TRAINING, **_ALL_REDUCE_FLAGS},
            gang=True,
            results=("replicas compared", "replicas that differ"),
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
            flags=_TRAINING,
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
            flags=_MNIST_FLAGS,
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
            jobs=("ps", "worker"),
            args=("--global_steps=300", "--learning_rate=1"),
            flags={**_TRAINING, **_SERVER, **_STALENESS_FLAGS},
            steps_add_up=True,
            results=("staleness", "test loss"),
            expected="among n workers a gradient is nearly n - 1 updates old when it arrives",
        ),
        Experiment(
            name="estimator",
            program="estimator.py",
            summary="TensorFlow 1's Estimator: chief, ps, workers and evaluator by TF_CONFIG",
            lesson="estimator.md",
            jobs=("chief", "ps", "worker", "evaluator"),
            counts={"chief": 1, "evaluator": 1},
            cluster="clusters/estimator.yaml",
            args=("--checkpoint_every=2",),
            flags={**_MODEL, **_STEPS, **_ESTIMATOR_FLAGS},
            steps_add_up=True,
            results=("RunConfig fields that differ", "checkpoints evaluated", "accuracy gained"),
            expected="RunConfig is as the cluster; the last checkpoint is no worse than the first",
            tensorflow="2.15",
        ),
        Experiment(
            name="estimator-mirrored",
            program="estimator.py",
            summary="an Estimator with a strategy: all-reduce between the cards of one host",
            lesson="estimator.md",
            jobs=("worker",),
            services=(),
            counts={"worker": 1},
            args=("--strategy=mirrored", "--checkpoint_every=2"),
            flags={**_MODEL, **_STEPS, **_ESTIMATOR_FLAGS},
            results=("RunConfig fields that differ", "replicas built", "checkpoints evaluated"),
            expected="every card builds the model, and accuracy is that of the joined batch",
            tensorflow="2.15",
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
            flags=_TRAINING,
            gang=True,
            results=("ranks compared", "ranks that differ"),
            expected="all ranks end with the same parameters, bit by bit",
            tensorflow="2.15",
        ),
    )
}
