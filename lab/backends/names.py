"""The names of the backends, and what each can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

AUTO: Final = "auto"
LOCAL: Final = "local"
COMPOSE: Final = "compose"
CLASS: Final = "class"
SLURM: Final = "slurm"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do.

    Attributes:
        tasks: What its tasks are, in the plural.
        containers: Whether tasks see the project's files under other paths than this host.
        host_gpus: Whether tasks use the GPUs that this process sees, so that it can sample them.
        queued: Whether an environment waits in a queue with those of other users. `auto` does not
            choose such a backend.
    """

    tasks: str
    containers: bool = False
    host_gpus: bool = True
    queued: bool = False


CAPABILITIES: Final[Mapping[str, Capabilities]] = {
    LOCAL: Capabilities("processes"),
    COMPOSE: Capabilities("containers", containers=True),
    CLASS: Capabilities("queue", containers=True, host_gpus=False, queued=True),
    SLURM: Capabilities("jobs", host_gpus=False, queued=True),
}
"""The backends by their names."""

BACKENDS: Final = (AUTO, *CAPABILITIES)
"""What `--backend` takes."""


def capabilities(name: str) -> Capabilities:
    """Return what a backend can do; a run of another host may name an unknown one."""
    return CAPABILITIES.get(name, Capabilities("tasks", host_gpus=False))
