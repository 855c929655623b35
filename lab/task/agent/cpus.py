"""The CPUs of a task, for programs that would otherwise start a thread for each CPU of the host."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_CPU_MAX: Final = Path("/sys/fs/cgroup/cpu.max")


def cpus_of_task(tasks: int, limit: Path = _CPU_MAX) -> int:
    """Return the number of CPUs of this agent's task, at least 1.

    A task has CPUs of its own if it is pinned to them, as by `lab`, a container engine or Slurm, or
    if its container has a limit, as on Kubernetes. Otherwise all tasks may run on this host.

    Args:
        tasks: The number of all tasks.
        limit: The limit of the container's cgroup: `QUOTA PERIOD`, or `max PERIOD`.
    """
    host = os.cpu_count() or 1
    own = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # no container, or no limit
        quota, period = map(int, limit.read_text("utf-8").split())
        own = min(own, quota // period)
    return max(1, own if own < host else host // tasks)
