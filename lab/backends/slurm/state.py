"""The state of an environment on Slurm: the directory `<state>/slurm/<project>/`.

It holds `environment.json`, the batch script, its output, the run volume `runs/` and the agents'
output in `output/`. All nodes must see it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.backends.directory import EnvironmentDir, directory_of
from lab.backends.names import SLURM
from lab.backends.state import state_directory
from lab.errors import LabError
from lab.volume.files import write_atomically


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


class StateDir(EnvironmentDir):
    """The state directory of one environment.

    Attributes:
        script: The batch script.
        log: The output of the batch script.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.script = directory / "cluster.sbatch"
        self.log = directory / "job.log"

    def read(self) -> EnvironmentRecord | None:
        """Read the record; None if there is none.

        Raises:
            LabError: The record cannot be read.
        """
        # Imported here: few commands look for environments on Slurm.
        import msgspec  # noqa: PLC0415

        try:
            return msgspec.json.decode(self.record.read_bytes(), type=EnvironmentRecord)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, RecursionError, OSError) as error:
            raise LabError(
                f"{self.record} cannot be read: {error}",
                f"cancel its job with `scancel`, then remove {self.directory}",
            ) from error

    def write(self, record: EnvironmentRecord) -> None:
        """Write the record atomically."""
        write_atomically(self.record, json.dumps(asdict(record), indent=2) + "\n")


def state_dir(project: str) -> StateDir:
    """Return the state directory of this name; it may not exist.

    Raises:
        LabError: The name is not valid.
    """
    return StateDir(directory_of(SLURM, project))


def projects() -> list[str]:
    """Return the names of all environments that have a record."""
    found = (state_directory() / SLURM).glob("*/environment.json")
    return sorted(path.parent.name for path in found)
