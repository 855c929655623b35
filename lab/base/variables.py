"""All environment variables of `lab`. Other modules import their names from here.

The text below each name has its reader, its default, and its meaning.
`docs/reference/commands.md` has the same for the variables that a user sets or a program reads.
"""

from __future__ import annotations

from typing import Final

LAB_RUNS_DIR: Final = "LAB_RUNS_DIR"
"""`lab` (default: `runs`): directory of the run store."""
LAB_STATE: Final = "LAB_STATE"
"""`lab` (default: `~/.local/state/lab`): directory for the state of environments."""
LAB_GPUS: Final = "LAB_GPUS"
"""`lab` (default: all): GPUs that `lab` may use, by index or UUID; empty: none."""
LAB_GPU_RECORD: Final = "LAB_GPU_RECORD"
"""`lab` (default: `/var/tmp/lab-gpus`): directory in which all users record their GPUs."""
LAB_PLUGINS: Final = "LAB_PLUGINS"
"""`lab` (default: all): `none` disables the plug-ins of other packages."""
LAB_LOCAL: Final = "LAB_LOCAL"
"""`lab` (default: `fork,namespaces`): techniques that the local backend uses: without `fork`, it
starts every program separately; without `namespaces`, nodes have no network of their own."""

LAB_IMAGE: Final = "LAB_IMAGE"
"""Compose (default: that of the framework, such as `lab:cpu`): name of the image."""
LAB_TENSORFLOW: Final = "LAB_TENSORFLOW"
"""Compose (default: that of the lock file): another TensorFlow, which isn't locked: pip chooses
its packages and doesn't check hashes."""
LAB_BASE_IMAGE: Final = "LAB_BASE_IMAGE"
"""Compose (default: `python:3.11-slim-bookworm`): base image; with `@sha256:` and a digest, one
exact base image."""
LAB_WHEELS: Final = "LAB_WHEELS"
"""`lab` (default: none): directory with wheels that the package index doesn't offer, such as
PyTorch for CPUs; image builds use the wheels with the locked hashes, and the Horovod wheel from
`make heritage`."""
LAB_BUILD_NETWORK: Final = "LAB_BUILD_NETWORK"
"""Compose (default: `default`): `host` builds with the host's network."""
LAB_RUN: Final = "LAB_RUN"
"""Compose (default: the run of the config): experiment, flags, `--stall=TIME`; empty: no run."""
LAB_ONCE: Final = "LAB_ONCE"
"""Compose (default: `0`): `1` ends the environment with the run."""

LAB_PYTHON: Final = "LAB_PYTHON"
"""The job script (default: that of `.venv`): the Python of the tasks."""
LAB_JOB_DIR: Final = "LAB_JOB_DIR"
"""The job script (default: `slurm-JOB`): directory of the run volume and the output."""

LAB_TASK: Final = "LAB_TASK"
"""Programs: name of the task, `worker-0`."""
LAB_RUN_DIR: Final = "LAB_RUN_DIR"
"""Programs: directory of the run; its name is the run's id."""
LAB_ATTEMPT: Final = "LAB_ATTEMPT"
"""Programs (default: `0`): number of restarts of the program."""
LAB_DATA_DIR: Final = "LAB_DATA_DIR"
"""Programs (default: none): directory that `--data_dir` names, as the task sees it."""
LAB_START: Final = "LAB_START"
"""Programs (default: none): file whose existence starts the training of a program of `lab`."""
LAB_GPU_MEMORY_FRACTION: Final = "LAB_GPU_MEMORY_FRACTION"
"""Programs (default: all of it): share of each GPU's memory for the task."""

LAB_PROJECT: Final = "LAB_PROJECT"
"""The agent: name of the project."""
LAB_NODE: Final = "LAB_NODE"
"""The agent: name of the node."""
LAB_CLUSTER: Final = "LAB_CLUSTER"
"""The agent: TensorFlow's cluster spec, as JSON; own programs have it, too, if their arguments have
no placeholders."""
LAB_RUNS: Final = "LAB_RUNS"
"""The agent: directory of the run volume."""
LAB_SCRIPTS: Final = "LAB_SCRIPTS"
"""The agent: directory of the programs of `lab`."""
LAB_DATA: Final = "LAB_DATA"
"""The agent: the project's `data/`."""
LAB_RUNTIME: Final = "LAB_RUNTIME"
"""The agent: TensorFlow version of the plan."""
LAB_RUN_TERMS: Final = "LAB_RUN_TERMS"
"""The agent: `start`, `faults` and `env` of the config's run, as JSON."""
LAB_LINK: Final = "LAB_LINK"
"""The agent (default: no limit): the node's link: its rate in bits per second, and its delay in
microseconds; 0: none."""
LAB_CLOCK: Final = "LAB_CLOCK"
"""The agent (default: the host's clock): directory of the file system that gives the time to
agents on several hosts, which then use no locks."""
LAB_OUTPUT: Final = "LAB_OUTPUT"
"""The agent (default: its standard output): directory of the agents' output."""
LAB_SLURM_NODES: Final = "LAB_SLURM_NODES"
"""The agent: nodes and tasks of each component of a job, as JSON."""
LAB_LAZY_KERAS: Final = "LAB_LAZY_KERAS"
"""The agent (default: none): set if `lab`, not the user, has deferred Keras."""

LAB_QUEUE: Final = "LAB_QUEUE"
"""A class: address of the queue, and a seat's token for it."""
LAB_CLUSTER_CONFIG: Final = "LAB_CLUSTER_CONFIG"
"""A class (default: that of the image): text of a seat's config."""
