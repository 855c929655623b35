"""The names of the backends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

AUTO: Final = "auto"
LOCAL: Final = "local"
COMPOSE: Final = "compose"
CLASS: Final = "class"
SLURM: Final = "slurm"
KINDS: Final[Mapping[str, str]] = {
    LOCAL: "processes",
    COMPOSE: "containers",
    CLASS: "queue",
    SLURM: "jobs",
}
"""Each backend's name, and what its tasks are."""

ON_REQUEST: Final = frozenset({CLASS, SLURM})
"""The backends that `auto` does not choose: others wait in their queues."""

BACKENDS: Final = (AUTO, *KINDS)
"""What `--backend` takes."""
