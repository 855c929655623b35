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

CLUSTER_FLAGS: Final[Mapping[str, str]] = {
    "job_name": "{job}",
    "task_index": "{index}",
    "ps_hosts": "{ps_hosts}",
    "worker_hosts": "{worker_hosts}",
}
"""The flags that describe the cluster and the task to a program of lab, each with its value."""


STALL_S: Final[float] = 300
"""Default time limit without a new global step or sign of life, in seconds."""

READY_S: Final[float] = 120
"""Default time limit for every program to be ready, in seconds."""

LOST_CONTACT: Final = "lost contact with"
"""The beginning of a program's error message after another task stopped answering."""

LOST_AFTER_S: Final = 15.0
"""An agent without a heartbeat for this time is lost, in seconds."""

_CHIEFS: Final = ("chief-0", "worker-0")


def task_names(cluster: ClusterSpec) -> list[str]:
    """Return the names of all tasks in the cluster's order; `/job:worker/task:0` is `worker-0`."""
    return [f"{job}-{i}" for job, hosts in cluster.items() for i in range(len(hosts))]


def chief_of(tasks: Collection[str]) -> str | None:
    """Return the task that initializes and saves: the chief, else the first worker, if any."""
    return next((task for task in _CHIEFS if task in tasks), None)


def new_run_id(experiment: str) -> str:
    """Return an id for a new run, such as `20261121-0810-async-7f3a`; the time is UTC.

    Args:
        experiment: The experiment's name or the program's stem. A hyphen replaces characters that
            a run id cannot contain.
    """
    name = re.sub(r"[^a-z0-9]+", "-", experiment.lower()).strip("-")[:40].strip("-") or "run"
    return f"{time.strftime('%Y%m%d-%H%M', time.gmtime())}-{name}-{secrets.token_hex(2)}"
