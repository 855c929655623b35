"""The options of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lab.backends.options import Values


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """The options of a job.

    Attributes:
        het: Whether to request a heterogeneous job if the nodes have different sizes.
        time_s: The time limit of the job, in seconds.
        container: The Apptainer image of its tasks, a path; relative ones start at the project's
            directory. "": the project's virtual environment.
    """

    het: bool = True
    time_s: float = 3600.0
    container: str = ""

    def values(self) -> Values:
        """Return the values of `-o`."""
        return {"het": self.het, "time": self.time_s, "container": self.container}


DEFAULTS: Final = SlurmOptions()
