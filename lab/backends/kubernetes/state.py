"""The state of an environment on Kubernetes: the directory `<state>/kubernetes/<project>/`.

It holds `environment.json` and the rendered objects. The run volume is on the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.backends import environment_dir
from lab.backends.environment_dir import EnvironmentDir, Record
from lab.backends.names import KUBERNETES


@dataclass(frozen=True, slots=True)
class TaskRecord(environment_dir.TaskRecord):
    """A task, its address, and its number of GPUs."""

    address: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRecord(Record):
    """One environment, as stored in `environment.json`.

    Attributes:
        context: The context of the kubeconfig; "" in a pod.
        namespace: The namespace.
        owner: The label of all objects of this environment, and of no others.
        own_claim: Whether lab has made the volume claim.
        kinds: The kinds of the other objects, in the order in which they are removed.
        reader: The pod in which the client reads and writes the run volume.
    """

    context: str
    namespace: str
    owner: str
    own_claim: bool
    kinds: tuple[str, ...]
    reader: dict[str, Any]
    tasks: tuple[TaskRecord, ...]


class StateDir(EnvironmentDir[EnvironmentRecord]):
    """The state directory of one environment.

    Attributes:
        file: The rendered objects.
    """

    backend = KUBERNETES
    record_type = EnvironmentRecord
    hint = "remove what `kubectl get all,pvc,netpol -l lab.project` lists"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.file = directory / "cluster.k8s.yaml"
