"""The registry of experiments.

The image contains it, because `docker compose up` starts a run without a client: `LAB_RUN` names
the experiment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from lab.base.converters import one_of
from lab.protocol.experiments.experiment import FAIL, RESTART, Experiment
from lab.protocol.experiments.program_flags import (
    ProgramFlag,
    flags,
    positive,
    rate,
)

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
    summary="every worker updates the shared parameters on its own, without waiting",
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
    summary="async, several times faster: a step is one message each way",
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
        *(*_TRAINING, "cpu_replicas"),
        strategy=ProgramFlag(
            "mirrored or multiworker", one_of("mirrored", "multiworker"), default="multiworker"
        ),
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
        *("model", *_STEPS, "checkpoint_dir", "checkpoint_every", "cpu_replicas"),
        strategy=ProgramFlag("none, or mirrored", one_of("none", "mirrored"), default="none"),
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
            summary="sync, several times faster: the last worker of a round makes the update",
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
                *(*_STEPS, "checkpoint_dir", "summary_every", "records"),
                towers=ProgramFlag("towers if there is no GPU", positive, default=2),
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
            summary="stale gradients and their effect on the training",
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
        replace(
            _DDP,
            name="horovod",
            program="horovod_ring.py",
            summary="Horovod's ring all-reduce between the workers: no parameter servers",
            horovod=True,
            policy=FAIL,
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
            summary="local steps, then the mean of all ranks' parameters",
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
        replace(
            _DDP,
            name="jax-dp",
            program="jax_dp.py",
            summary="JAX: the compiler adds the all-reduce between the workers",
            results=("processes compared", "processes that differ"),
            expected="all processes end with the same parameters, bit by bit",
            runtime="jax",
        ),
    )
}
