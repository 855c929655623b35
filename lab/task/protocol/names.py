"""Names and defaults that the client and the task agents share."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Collection, Mapping
from typing import Final

RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,80}")
TASK = re.compile(r"[a-z]+-(0|[1-9][0-9]{0,4})")

ClusterSpec = Mapping[str, list[str]]
"""TensorFlow's cluster spec: job to list of `host:port`."""

CLUSTER_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "job_name": (),
    "task_index": ("task_id",),
    "ps_hosts": ("ps",),
    "worker_hosts": ("worker",),
}
"""The flags that tell a program who is who in the cluster, each with its other names."""

DATA_DIR: Final = "LAB_DATA_DIR"
"""Names the directory with a student's own data to programs that take no flag for it."""

STALL_S: Final[float] = 300
"""Seconds without a new global step that are too many, where nobody says otherwise."""

READY_S: Final[float] = 120
"""Seconds within which every program must be ready, where nobody says otherwise."""

LOST_CONTACT: Final = "lost contact with"
"""So begins the last word of a program that misses another task."""

LOST_AFTER_S: Final = 15.0
"""An agent whose heartbeat stands still for this long is lost, in seconds."""

_CHIEFS: Final = ("chief-0", "worker-0")


def task_names(cluster: ClusterSpec) -> list[str]:
    """Names of all tasks in the cluster's order, `worker-0` for `/job:worker/task:0`."""
    return [f"{job}-{i}" for job, hosts in cluster.items() for i in range(len(hosts))]


def chief_of(tasks: Collection[str]) -> str | None:
    """The task that initializes and saves: the chief, else the first worker, if any."""
    return next((task for task in _CHIEFS if task in tasks), None)


def new_run_id(experiment: str) -> str:
    """A name for a new run: `20261121-0810-async-7f3a`, where the time is UTC.

    Args:
        experiment: The experiment's name or the program's stem; what a run id may not hold is
            replaced by a hyphen.
    """
    name = re.sub(r"[^a-z0-9]+", "-", experiment.lower()).strip("-")[:40].strip("-") or "run"
    return f"{time.strftime('%Y%m%d-%H%M', time.gmtime())}-{name}-{secrets.token_hex(2)}"
