"""The registry of experiments.

The image contains it, because `docker compose up` starts a run without a client: `LAB_RUN` names
the experiment.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lab.experiments.policy import FAIL, RESTART, Policy
from lab.experiments.program_flags import PROGRAM_FLAGS, ProgramFlag, flags, one_of, positive, rate

MAX_SEED: Final = 2**31


@dataclass(frozen=True, slots=True)
class Experiment:
    """A named training program.

    Attributes:
        name: Its name for `lab run` and `LAB_RUN`.
        program: The program's file in `scripts/`.
        summary: One line for lists.
        jobs: The jobs that the cluster must have, each with at least one task.
        counts: The exact number of tasks by job, for jobs that need one.
        cluster: The shipped config that fits it best; "" if any config with these jobs fits.
        services: The jobs that serve until all other jobs have ended.
        args: Default arguments; they come before the user's own, which override them.
        has_data: Whether the program reads the images.
        flags: The program's own flags, by name without dashes.
        steps_add_up: Whether every local step is an update, so that the workers' local steps add up
            to the global step. Then the run can also continue without a worker.
        gang: Whether all tasks restart together when one restarts: their shared state does not
            survive the end of one task.
        horovod: Whether Horovod forms a ring of its tasks.
        joins_at_step: Whether the program itself waits for the global step at which a task joins.
            The agents' states report the step up to a second late.
        must_talk: Whether a run has failed if its tasks make steps and never talk to each other.
        policy: The default policy of its runs when a task fails.
        faults: The faults to inject into each of its runs; see `lab.experiments.faults`.
        results: Names of the results that each run must have; the program reports their limits.
        expected: The expected outcome, as a text.
        page: Its page in `docs/tutorials/lessons/`; "": the one with its name.
        runtime: Its runtime, a key of `lab.runtimes.RUNTIMES`.
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
    horovod: bool = False
    joins_at_step: bool = False
    must_talk: bool = True
    policy: Policy = FAIL
    faults: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    expected: str = ""
    page: str = ""
    runtime: str = "tensorflow"

    @property
    def framework(self) -> str:
        """Its framework: `tensorflow` of the runtime `tensorflow-2.15`."""
        return self.runtime.partition("-")[0]

    @property
    def lesson(self) -> str:
        """Its page in `docs/tutorials/lessons/`: `async.md`."""
        return self.page or f"{self.name}.md"


def misfit(wanted: Experiment, tasks: Mapping[str, int]) -> str:
    """Return why an experiment cannot run on a cluster, or "".

    Args:
        wanted: The experiment.
        tasks: The number of tasks of each job of the cluster.

    Returns:
        The end of a message that begins with the experiment's name: `needs the job 'ps'`.
    """
    for job in wanted.jobs:
        if not tasks.get(job):
            return f"needs the job {job!r}"
    for job, count in wanted.counts.items():
        if tasks[job] != count:
            return f"needs {count} of the job {job!r}, not {tasks[job]}"
    for job in tasks:
        if job not in wanted.jobs:
            return f"does not use the job {job!r}"
    return ""


def with_seed(experiment: Experiment, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments with a seed; if they have none, draw one, so that it is recorded."""
    if "seed" not in experiment.flags or "seed" in hyperparameters(experiment, argv):
        return tuple(argv)
    import secrets  # noqa: PLC0415  (its import is slow, and few commands need it)

    return (f"--seed={secrets.randbelow(MAX_SEED)}", *argv)


def hyperparameters(experiment: Experiment, argv: Sequence[str]) -> dict[str, Any]:
    """Return the program's flags among its arguments; the last value of a flag counts."""
    values: dict[str, Any] = {}
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
        except (ValueError, ArgumentTypeError):  # after `--`, unchecked: the program rejects it
            value = raw
        values[name] = value if isinstance(value, int | float | str | bool) else str(value)
    return values


def with_defaults(experiment: Experiment, argv: Sequence[str]) -> dict[str, Any]:
    """Return the program's flags; also those with a default that does not depend on the model."""
    defaults = {name: flag.default for name, flag in experiment.flags.items()}
    chosen = hyperparameters(experiment, argv)
    return {name: value for name, value in defaults.items() if value is not None} | chosen


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

_ASYNC: Final = Experiment(
    name="async",
    program="mnist_async.py",
    summary="every worker updates the shared parameters on its own, at once",
    flags=flags(*_MNIST, "eval_every"),
    steps_add_up=True,
    joins_at_step=True,
)
_SYNC: Final = Experiment(
    name="sync",
    program="mnist_sync.py",
    summary="one update of the shared parameters per round of gradients",
    flags=flags(*_MNIST, "eval_every", "replicas_to_aggregate"),
    gang=True,
)
_MLP: Final = ("--model=mlp", "--global_steps=50000")
_ASYNC_FAST: Final = Experiment(
    name="async-fast",
    program="async_fast.py",
    summary="async, several times quicker: a step is one message there and one back",
    page="speed.md",
    counts={"ps": 1},
    flags=flags("epochs", *_STEPS, "steps_per_call", "one_core", "eval_every"),
    steps_add_up=True,
    joins_at_step=True,
)
_MIRRORED: Final = Experiment(
    name="mirrored",
    program="all_reduce.py",
    summary="all-reduce between the GPUs of one host",
    page="all-reduce.md",
    jobs=("worker",),
    services=(),
    args=("--strategy=mirrored", "--model=mlp"),
    counts={"worker": 1},
    flags=flags(
        *_TRAINING,
        strategy=ProgramFlag(
            "mirrored or multiworker", one_of("mirrored", "multiworker"), default="multiworker"
        ),
        cpu_replicas=PROGRAM_FLAGS["cpu_replicas"],
    ),
    results=("replicas compared", "replicas that differ"),
    expected="the replicas' parameters are the same, bit by bit",
)
_ESTIMATOR: Final = Experiment(
    name="estimator",
    program="estimator.py",
    summary="TensorFlow 1's Estimator: chief, ps, workers and evaluator by TF_CONFIG",
    jobs=("chief", "ps", "worker", "evaluator"),
    counts={"chief": 1, "evaluator": 1},
    cluster="clusters/estimator.yaml",
    args=("--checkpoint_every=2",),
    flags=flags(
        *("model", *_STEPS, "checkpoint_dir", "checkpoint_every"),
        strategy=ProgramFlag("none, or mirrored", one_of("none", "mirrored"), default="none"),
        cpu_replicas=PROGRAM_FLAGS["cpu_replicas"],
    ),
    steps_add_up=True,
    results=("RunConfig fields that differ", "checkpoints evaluated", "accuracy gained"),
    expected="RunConfig matches the cluster; the last checkpoint is no worse than the first",
    runtime="tensorflow-2.15",
)
_DDP: Final = Experiment(
    name="ddp",
    program="ddp.py",
    summary="PyTorch's DistributedDataParallel: all-reduce between the workers",
    jobs=("worker",),
    cluster="clusters/workers.yaml",
    services=(),
    args=("--model=mlp",),
    flags=flags(*_TRAINING),
    gang=True,
    policy=RESTART,
    results=("ranks compared", "ranks that differ"),
    expected="all ranks end with the same parameters, bit by bit",
    runtime="torch",
)

EXPERIMENTS: Final[Mapping[str, Experiment]] = {
    experiment.name: experiment
    for experiment in (
        _ASYNC,
        _SYNC,
        replace(
            _ASYNC,
            name="async-mlp",
            summary="the blog's model, every worker on its own",
            page="async.md",
            args=_MLP,
        ),
        replace(
            _SYNC,
            name="sync-mlp",
            summary="the blog's model, one update per round of gradients",
            page="sync.md",
            args=_MLP,
        ),
        _ASYNC_FAST,
        replace(
            _ASYNC_FAST,
            name="sync-fast",
            program="sync_fast.py",
            summary="sync, several times quicker: the last worker of a round makes the update",
            steps_add_up=False,
            joins_at_step=False,
            gang=True,
        ),
        Experiment(
            name="hello",
            program="hello.py",
            summary="servers of one job; each evaluates a greeting",
            jobs=("local",),
            services=(),
            has_data=False,
            results=("tasks that greeted",),
            expected="every task greets every task, and all of them end",
        ),
        Experiment(
            name="placement",
            program="device_placement.py",
            summary="where operations run: tf.device, soft placement, device setter",
            has_data=False,
            results=(
                "where they should be",
                "elsewhere than logged",
                "refused without soft placement",
            ),
            expected="each operation runs on the requested device; bytes for each strategy",
        ),
        Experiment(
            name="linear",
            program="linear.py",
            summary="a separate client trains a line on one of two servers",
            jobs=("worker", "client"),
            services=("worker",),
            counts={"client": 1},
            has_data=False,
            flags=flags(
                "steps",
                learning_rate=ProgramFlag("step size of the gradient descent", rate, default=0.1),
            ),
            results=("w", "b"),
            expected="w = 2 and b = 10, within 0.05 and 0.1",
        ),
        Experiment(
            name="in-graph",
            program="in_graph.py",
            summary="one client builds the graph, with a replica on each worker",
            jobs=("ps", "worker", "client"),
            services=("ps", "worker"),
            counts={"client": 1},
            flags=flags(*_TRAINING, "gpu_memory_fraction", "compare_steps"),
            results=("apart from one process",),
            expected="parameters as in one process with the joined batch, within 0.0001",
        ),
        Experiment(
            name="model-parallel",
            program="model_parallel.py",
            summary="one model split across two tasks, which exchange activations",
            jobs=("worker", "client"),
            services=("worker",),
            counts={"worker": 2, "client": 1},
            flags=flags("epochs", *_STEPS, "gpu_memory_fraction", "compare_steps"),
            results=("apart from one process",),
            expected="parameters as in one process, within 0.0001",
        ),
        Experiment(
            name="towers",
            program="towers.py",
            summary="one host, several GPUs: gradients averaged by hand",
            jobs=("worker",),
            services=(),
            counts={"worker": 1},
            flags=flags(
                *(*_STEPS, "checkpoint_dir"),
                towers=ProgramFlag("towers if there is no GPU", positive, default=2),
                summary_every=PROGRAM_FLAGS["summary_every"],
                records=PROGRAM_FLAGS["records"],
            ),
            results=("apart from the joined batch", "examples a second"),
            expected="the averaged gradient equals the joined batch's, within 0.0001 of its size",
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
            summary="TensorFlow 2's parameter servers: a chief assigns steps",
            jobs=("chief", "ps", "worker"),
            services=("ps", "worker"),
            policy=RESTART,
            counts={"chief": 1},
            flags=flags(*_TRAINING),
            results=("steps counted",),
            expected="every step is counted, also when a worker fails",
        ),
        Experiment(
            name="evaluator",
            program="evaluator.py",
            summary="a task that tests each checkpoint while the others train",
            jobs=("ps", "worker", "evaluator"),
            args=("--checkpoint_every=2",),
            flags=flags(*_MNIST),
            steps_add_up=True,
            counts={"evaluator": 1},
            results=("checkpoints evaluated", "accuracy gained"),
            expected="the accuracy of the last checkpoint is above the first one's",
        ),
        Experiment(
            name="staleness",
            program="staleness.py",
            summary="late gradients and their effect on the training",
            args=("--global_steps=300", "--learning_rate=1"),
            flags=flags(*_TRAINING, "gpu_memory_fraction", "pause"),
            steps_add_up=True,
            results=("staleness", "test loss"),
            expected="the mean staleness of n workers is from (n - 1) / 4 to n - 1 updates",
        ),
        _ESTIMATOR,
        replace(
            _ESTIMATOR,
            name="estimator-mirrored",
            summary="an Estimator with a strategy: all-reduce between the GPUs of one host",
            page="estimator.md",
            jobs=("worker",),
            services=(),
            counts={"worker": 1},
            cluster="",
            args=("--strategy=mirrored", "--checkpoint_every=2"),
            steps_add_up=False,
            results=("RunConfig fields that differ", "replicas built", "checkpoints evaluated"),
            expected="every GPU builds the model; the accuracy is that of the joined batch",
        ),
        Experiment(
            name="horovod",
            program="horovod_ring.py",
            summary="Horovod's ring all-reduce between the workers: no parameter servers",
            jobs=("worker",),
            cluster="clusters/workers.yaml",
            services=(),
            args=("--model=mlp",),
            flags=flags(*_TRAINING),
            gang=True,
            horovod=True,
            results=("ranks compared", "ranks that differ"),
            expected="all ranks end with the same parameters, bit by bit",
            runtime="tensorflow-2.15",
        ),
        _DDP,
        replace(
            _DDP,
            name="fsdp",
            program="fsdp.py",
            summary="PyTorch's FSDP: each rank stores a part of the parameters",
            results=("bytes of this rank", "bytes of all ranks"),
            expected="the ranks' parts are the whole model; the training is that of ddp",
        ),
        replace(
            _DDP,
            name="local-sgd",
            program="local_sgd.py",
            summary="steps alone, then the mean of all ranks' parameters",
            flags=flags(*_TRAINING, "average_every"),
            results=("means", "ranks that differ"),
            expected="after the last mean all ranks have the same parameters, bit by bit",
        ),
        Experiment(
            name="torch-async",
            program="torch_async.py",
            summary="PyTorch: a parameter server, made of messages",
            counts={"ps": 1},
            flags=flags(*_TRAINING),
            steps_add_up=True,
            gang=True,
            policy=RESTART,
            runtime="torch",
        ),
        Experiment(
            name="jax-dp",
            program="jax_dp.py",
            summary="JAX: the compiler adds the all-reduce between the workers",
            jobs=("worker",),
            cluster="clusters/workers.yaml",
            services=(),
            args=("--model=mlp",),
            flags=flags(*_TRAINING),
            gang=True,
            policy=RESTART,
            results=("processes compared", "processes that differ"),
            expected="all processes end with the same parameters, bit by bit",
            runtime="jax",
        ),
    )
}
