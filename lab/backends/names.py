"""The table of the backends: the names, what each can do, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lab.backends.options import (
    BackendOption,
    choice,
    dotted_name,
    image_name,
    object_name,
    time_limit,
)

AUTO: Final = "auto"
LOCAL: Final = "local"
COMPOSE: Final = "compose"
CLASS: Final = "class"
SLURM: Final = "slurm"
KUBERNETES: Final = "kubernetes"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do.

    Attributes:
        type: Its class, `module:Class`.
        tasks: What its tasks are, in the plural.
        containers: Whether tasks see the project's files under other paths than this host.
        host_gpus: Whether tasks use the GPUs that this process sees, so that it can sample them.
        queued: Whether an environment waits in a queue with those of other users. `auto` does not
            choose such a backend.
        network_faults: Whether a fault can change the network of a node.
        renders: The file that `lab render` writes, and others that `lab render --check` looks for
            if it is missing; none: the backend has no such file.
        shares_gpus: Whether another environment may hold the GPUs of its environments.
        down: The command that removes an environment, with `{}` for its name.
        options: Its own options.
    """

    type: str
    tasks: str
    containers: bool = False
    host_gpus: bool = True
    queued: bool = False
    network_faults: bool = True
    renders: tuple[str, ...] = ()
    shares_gpus: bool = True
    down: str = "lab down {}"
    options: tuple[BackendOption, ...] = ()


CAPABILITIES: Final[Mapping[str, Capabilities]] = {
    COMPOSE: Capabilities(
        "lab.backends.compose.backend:ComposeBackend",
        "containers",
        containers=True,
        # `docker compose` reads the second one where the first is missing.
        renders=("compose.yaml", "docker-compose.yml"),
        options=(
            choice("gpus-by", "how to request GPUs of the engine", "nvidia", "cdi"),
            choice(
                "network",
                "isolated: tasks cannot reach this host (Engine 28 or later)",
                "portable",
                "isolated",
            ),
        ),
    ),
    LOCAL: Capabilities("lab.backends.local.backend:LocalBackend", "processes"),
    CLASS: Capabilities(
        "lab.teach.classroom.backend:ClassBackend",
        "queued containers",
        containers=True,
        host_gpus=False,
        queued=True,
        network_faults=False,
        shares_gpus=False,
        down="lab class down",
    ),
    SLURM: Capabilities(
        "lab.backends.slurm.backend:SlurmBackend",
        "jobs",
        host_gpus=False,
        queued=True,
        network_faults=False,
        renders=("cluster.sbatch",),
        options=(
            BackendOption(
                "time", "the job's time limit: 2h, 90m, or seconds", time_limit, "TIME", 3600.0
            ),
        ),
    ),
    KUBERNETES: Capabilities(
        "lab.backends.kubernetes.backend:KubernetesBackend",
        "pods",
        containers=True,
        host_gpus=False,
        queued=True,
        network_faults=False,
        renders=("cluster.k8s.yaml",),
        options=(
            choice("flavour", "plain: a Job for each task, without JobSet", "jobset", "plain"),
            choice(
                "nodes",
                "one: all pods on one node, for a volume that one node can mount (ReadWriteOnce)",
                "any",
                "one",
            ),
            BackendOption("queue", "the queue of Kueue", dotted_name, "NAME", ""),
            BackendOption(
                "namespace",
                "the namespace; by default that of the kubeconfig",
                object_name,
                "NAME",
                "",
            ),
            BackendOption(
                "claim",
                "the volume claim with the run volume; by default lab makes one",
                dotted_name,
                "NAME",
                "",
            ),
            BackendOption(
                "image", "the image of the tasks, as the nodes pull it", image_name, "IMAGE", ""
            ),
        ),
    ),
}
"""The backends by their names, the preferred one first."""

BACKENDS: Final = (AUTO, *CAPABILITIES)
"""What `--backend` takes."""

TARGETS: Final = tuple(name for name, backend in CAPABILITIES.items() if backend.renders)
"""What `lab render --target` takes."""


def capabilities(name: str) -> Capabilities:
    """Return what a backend can do; a run from another host may name an unknown one."""
    return CAPABILITIES.get(name, Capabilities("", "tasks", host_gpus=False))
