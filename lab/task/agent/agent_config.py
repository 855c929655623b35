"""The settings of an agent, read from its environment variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.base import variables as var
from lab.protocol.volume.layout import TASK

_NO_GPUS = {"", "-1", "void", "none"}


class AgentConfigError(ValueError):
    """An environment variable is missing or invalid; the message names it."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of an agent.

    Attributes:
        project: The project's name.
        node: The pseudo-node's name.
        task: The task's name, such as `worker-0`.
        cluster: TensorFlow's cluster spec.
        runs: The run volume.
        scripts: Directory of the training programs.
        data: Directory of a student's own data.
        gpus: Device ids of the task's GPUs; `all` if no GPUs are assigned; `none` without GPUs.
        runtime: The runtime of the programs, such as `tensorflow-2.15`; "" if unknown.
        locks: Whether all agents run on one host, so that a free lock shows an agent's end.
    """

    project: str
    node: str
    task: str
    cluster: dict[str, list[str]]
    runs: Path
    scripts: Path
    data: Path
    gpus: str = ""
    runtime: str = ""
    locks: bool = True

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> AgentConfig:
        """Read the variables.

        Raises:
            AgentConfigError: A variable is missing or invalid.
        """

        def needed(name: str) -> str:
            if value := environ.get(name):
                return value
            raise AgentConfigError(f"{name} not set")

        task, text = needed(var.LAB_TASK), needed(var.LAB_CLUSTER)
        if not TASK.fullmatch(task):
            raise AgentConfigError(f"LAB_TASK is not a task name: {task!r}")
        try:
            cluster = json.loads(text)
            job, _, index = task.rpartition("-")
            _ = cluster[job][int(index)]
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise AgentConfigError(f"LAB_CLUSTER is not a cluster spec with {task}") from error
        return cls(
            project=needed(var.LAB_PROJECT),
            node=needed(var.LAB_NODE),
            task=task,
            cluster=cluster,
            runs=Path(needed(var.LAB_RUNS)),
            scripts=Path(needed(var.LAB_SCRIPTS)),
            data=Path(needed(var.LAB_DATA)),
            gpus=_gpus(environ),
            runtime=environ.get(var.LAB_RUNTIME, ""),
            locks=not environ.get(var.LAB_CLOCK),
        )

    @property
    def job(self) -> str:
        """The job's name: `worker` of `worker-0`."""
        return self.task.rpartition("-")[0]

    @property
    def index(self) -> int:
        """The index in the job: 0 of `worker-0`."""
        return int(self.task.rpartition("-")[2])

    @property
    def gpu_count(self) -> int:
        """The number of its GPUs; 0 if none are assigned."""
        return 0 if self.gpus in {"none", "all"} else len(self.gpus.split(","))

    @property
    def address(self) -> str:
        """The `host:port` of the task's TensorFlow server."""
        return self.cluster[self.job][self.index]


def _gpus(environ: Mapping[str, str]) -> str:
    # CUDA's variable selects from the GPUs that the container runtime's variable permits.
    visible = environ.get("CUDA_VISIBLE_DEVICES", environ.get("NVIDIA_VISIBLE_DEVICES", ""))
    return "none" if visible.lower() in _NO_GPUS else visible
