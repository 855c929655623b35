"""The Slurm backend: a config as a job, on nodes that Slurm selects."""

from __future__ import annotations

import math
from typing import Final

from lab.backends.names import Capabilities
from lab.backends.options import BackendOption
from lab.base.converters import duration

NAME: Final = "slurm"
"""The name of its entry point."""

_MIN_TIME_S: Final = 60.0
_MAX_TIME_S: Final = 365 * 86_400.0


def _time_limit(raw: str) -> float:
    """Parse the time limit of a job, rounded up to whole seconds.

    Raises:
        ValueError: It isn't a duration between a minute and a year.
    """
    seconds = duration(raw)
    if not _MIN_TIME_S <= seconds <= _MAX_TIME_S:
        raise ValueError("a duration from one minute to 365 days")
    return float(math.ceil(seconds))


CAPABILITIES: Final = Capabilities(
    "lab.backends.slurm.backend:SlurmBackend",
    "jobs",
    host_gpus=False,
    queued=True,
    network_faults=False,
    renders=("cluster.sbatch",),
    options=(
        BackendOption(
            "time", "the job's time limit: 2h, 90m, or seconds", _time_limit, "TIME", 3600.0
        ),
    ),
)
