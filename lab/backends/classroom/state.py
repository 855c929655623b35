"""The state of an environment of the queue: the directory `<state>/class/<project>/` of the seat.

It holds `environment.json`, the run volume `runs/` and the agents' output in `output/`. The
containers of the environment mount the seat's home directory, and so have the same paths.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.backends.environment_dir import EnvironmentDir
from lab.backends.names import CLASS


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task, and its node in the config."""

    task: str
    node: str


@dataclass(frozen=True, slots=True)
class EnvironmentRecord:
    """One environment, as stored in `environment.json`.

    Attributes:
        project: The project's name.
        id: Its id in the queue.
        cluster_sha256: Digest of the config.
        root: The project's directory.
        tasks: The tasks, in the plan's order.
        tensorflow: The TensorFlow version of its tasks, as the plan names it.
        sources_sha256: Digest of lab's code in the seat, which is that of the containers.
    """

    project: str
    id: str
    cluster_sha256: str
    root: str
    tasks: tuple[TaskRecord, ...]
    tensorflow: str
    sources_sha256: str


class StateDir(EnvironmentDir[EnvironmentRecord]):
    """The state directory of one environment."""

    backend = CLASS
    record_type = EnvironmentRecord
    hint = "wait until the queue has ended the environment"
