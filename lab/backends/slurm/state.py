"""The state of an environment on Slurm: the directory `<state>/slurm/<project>/`.

It holds `environment.json`, the batch script, its output, the run volume `runs/` and the agents'
output in `output/`. All nodes must see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.backends import environment_dir
from lab.backends.environment_dir import EnvironmentDir, Record
from lab.backends.names import SLURM


@dataclass(frozen=True, slots=True)
class TaskRecord(environment_dir.TaskRecord):
    """A task, and its number of GPUs."""

    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRecord(Record):
    """One environment, as stored in `environment.json`.

    Attributes:
        job: The unique name of its job.
        interpreter: The Python that runs agents and programs.
    """

    job: str
    interpreter: str
    tasks: tuple[TaskRecord, ...]


class StateDir(EnvironmentDir[EnvironmentRecord]):
    """The state directory of one environment.

    Attributes:
        script: The batch script.
        log: The output of the batch script.
    """

    backend = SLURM
    record_type = EnvironmentRecord
    hint = "cancel its job with `scancel`"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.script = directory / "cluster.sbatch"
        self.log = directory / "job.log"
