"""The state of an environment on Slurm: the directory `<state>/slurm/<project>/`.

It holds `environment.json`, the batch script, its output, the run volume `runs/` and the agents'
output in `output/`. All nodes must see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.backends.environment_dir import EnvironmentDir
from lab.backends.names import SLURM


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task, its node in the config, and its number of GPUs."""

    task: str
    node: str
    gpus: int


@dataclass(frozen=True, slots=True)
class EnvironmentRecord:
    """One environment, as stored in `environment.json`.

    Attributes:
        project: The project's name.
        job: The unique name of its job.
        cluster_sha256: Digest of the config.
        root: The project's directory.
        interpreter: The Python that runs agents and programs; "" in an image.
        tasks: The tasks, in the plan's order.
        tensorflow: The TensorFlow version of this Python, as the plan names it.
        sources_sha256: Digest of lab's code that the agents run.
        container: The Apptainer image of the tasks; "" without one.
        container_sha256: Digest of this file; "" for a directory.
    """

    project: str
    job: str
    cluster_sha256: str
    root: str
    interpreter: str
    tasks: tuple[TaskRecord, ...]
    tensorflow: str
    sources_sha256: str
    container: str = ""
    container_sha256: str = ""


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
