"""The pods of a plan, as the restricted Pod Security Standard permits them.

A pod runs the agent of one task, as everywhere: `python -m lab.task.agent`. The agent starts the
programs, with TF_CONFIG or the variables of their framework.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lab import variables as var
from lab.backends.options import Values
from lab.placement.plan import Plan, PlannedRun, PlannedTask
from lab.runtimes import RUNTIMES
from lab.units import MIB

Object = dict[str, Any]
"""A Kubernetes object, or a part of one."""

PROJECT: Final = "lab.project"
OWNER: Final = "lab.owner"
JOB: Final = "lab.job"
TASK: Final = "lab.task"
"""The labels. Instead of `lab.task`, a pod of an indexed job has Kubernetes' label of its index."""

INDEX: Final = "batch.kubernetes.io/job-completion-index"
GPU: Final = "nvidia.com/gpu"
SCRIPTS: Final = "scripts"
"""The directory with the project's programs, here and on the run volume."""

_HOST: Final = "kubernetes.io/hostname"
_RUNS: Final = "/runs"
_USER: Final = 1000
"""The user of the image."""

_START_S: Final = 120
_GRACE_S: Final = 40
"""Seconds from a stop signal to the kill: programs have 30 s to save."""

_PRIVATE: Final[Object] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
_NO_ROOT: Final[Object] = {
    "runAsNonRoot": True,
    "runAsUser": _USER,
    "runAsGroup": _USER,
    "fsGroup": _USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
# An agent does not make the directory: after its removal, it must not appear again.
_SHELL: Final = 'mkdir -p "$LAB_RUNS" && exec '
_STARTED: Final = 'test -e "$LAB_RUNS/agents/$LAB_TASK.json"'
_HAS_VOLUME: Final = 'test -d "$LAB_RUNS"'


def base_name(project: str) -> str:
    """Return the name of a project's objects, or its first part. It begins with a letter."""
    return f"lab-{project}"


def directory_of(project: str, owner: str = "") -> str:
    """Return the directory of the run volume in a pod; an environment of `lab up` has its own."""
    return f"{_RUNS}/{project}{owner and f'-{owner}'}"


@dataclass(frozen=True, slots=True)
class Pods:
    """Makes the pods of a plan.

    Attributes:
        plan: The plan.
        options: The options of the backend.
        spec: TensorFlow's cluster spec, with the pods' names.
        owner: The label of all objects of one environment; "": a file is rendered.
    """

    plan: Plan
    options: Values
    spec: Mapping[str, list[str]]
    owner: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all objects."""
        return {PROJECT: self.plan.name, **({OWNER: self.owner} if self.owner else {})}

    @property
    def claim(self) -> str:
        """The name of the volume claim."""
        return str(self.options["claim"]) or f"{base_name(self.plan.name)}-runs"

    def metadata(self, name: str, labels: Mapping[str, str] | None = None) -> Object:
        """Return the metadata of an object."""
        space = str(self.options["namespace"])
        return {
            "name": name,
            **({"namespace": space} if space else {}),
            "labels": {**self.labels, **(labels or {})},
        }

    def agent(
        self, task: PlannedTask, *, is_indexed: bool, once: bool, hostname: str = ""
    ) -> Object:
        """Return the template of the pod of a task, or of all tasks of an indexed job.

        Args:
            task: The task; of an indexed job, any task.
            is_indexed: Whether the index of the pod gives the task.
            once: Whether the agent ends with its first run.
            hostname: The name of the pod in the subdomain of the plan; "": Kubernetes sets it.
        """
        labels = {JOB: task.job} if is_indexed else {JOB: task.job, TASK: task.name}
        environ = [
            *(_index(task) if is_indexed else _environ({var.LAB_TASK: task.name})),
            *_environ(_gpus(task)),
        ]
        container = self._container(
            f"{_SHELL}python -m lab.task.agent{' --once' if once else ''}", environ
        )
        limits = _limits(task)
        container |= {**_probe(_STARTED), **({"resources": {"limits": limits}} if limits else {})}
        subdomain = (
            {"hostname": hostname, "subdomain": base_name(self.plan.name)} if hostname else {}
        )
        return self._template(container, labels, subdomain)

    def run(self, run: PlannedRun) -> Object:
        """Return the template of the pod that submits the run and ends with it."""
        agents = " ".join(task.name for task in self.plan.tasks)
        wait = (
            f"for task in {agents}; do"
            ' until test -e "$LAB_RUNS/agents/$task.json"; do sleep 1; done; done; '
        )
        environ = _environ(
            {
                var.LAB_RUN: run.command,
                var.LAB_RUN_TERMS: run.terms,
                var.LAB_ONCE: "1",
            }
        )
        command = f"{wait}exec python -m lab.task.agent.autorun"
        return self._template(self._container(command, environ), {}, {})

    def reader(self) -> Object:
        """Return the pod in which the client reads and writes the run volume."""
        command = f"{_SHELL}python -m lab.task.node.anchor"
        container = self._container(command, []) | _probe(_HAS_VOLUME)
        spec = self._template(container, {}, {})["spec"]
        metadata = self.metadata(f"{base_name(self.plan.name)}-volume")
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _template(self, container: Object, labels: Mapping[str, str], spec: Object) -> Object:
        claim = {"persistentVolumeClaim": {"claimName": self.claim}}
        return {
            "metadata": {"labels": {**self.labels, **labels}},
            "spec": {
                **spec,
                **self._affinity(),
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": _GRACE_S,
                "securityContext": _NO_ROOT,
                "containers": [container],
                "volumes": [
                    {"name": "runs", **claim},
                    {"name": "tmp", "emptyDir": {}},
                    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                ],
            },
        }

    def _affinity(self) -> Object:
        """All pods of the plan on one node. Kubernetes selects it for the first of them."""
        if self.options["nodes"] != "one":
            return {}
        own = {"labelSelector": {"matchLabels": self.labels}, "topologyKey": _HOST}
        return {
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [own]}}
        }

    def _container(self, command: str, environ: list[Object]) -> Object:
        has_gpus = any(task.gpus for task in self.plan.tasks)
        image = str(self.options["image"]) or RUNTIMES[self.plan.runtime].image(gpus=has_gpus)
        runs = directory_of(self.plan.name, self.owner)
        common = {
            var.LAB_PROJECT: self.plan.name,
            var.LAB_CLUSTER: json.dumps(self.spec),
            var.LAB_RUNTIME: self.plan.runtime,
            var.LAB_RUNS: runs,
            # The client copies those of the project; a rendered file has those of the image.
            var.LAB_SCRIPTS: f"{runs}/{SCRIPTS}" if self.owner else "/lab/scripts",
            var.LAB_DATA: "/lab/data",
            # The pods are on different hosts, whose locks and clocks differ.
            var.LAB_CLOCK: runs,
        }
        host = {"fieldRef": {"fieldPath": "spec.nodeName"}}
        return {
            "name": "lab",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", command],
            "env": [*_environ(common), {"name": var.LAB_NODE, "valueFrom": host}, *environ],
            "securityContext": _PRIVATE,
            "volumeMounts": [
                {"name": "runs", "mountPath": _RUNS},
                {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  (a container's own)
                {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            ],
        }


def _probe(test: str) -> Object:
    """A pod is ready when this command succeeds."""
    return {
        "startupProbe": {
            "exec": {"command": ["sh", "-c", test]},
            "periodSeconds": 1,
            "failureThreshold": _START_S,
        }
    }


def _index(task: PlannedTask) -> list[Object]:
    """The variables that name the task of a pod by its index."""
    index = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    return [
        {"name": "TASK_INDEX", "valueFrom": index},
        {"name": var.LAB_TASK, "value": f"{task.job}-$(TASK_INDEX)"},
    ]


def _environ(values: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _gpus(task: PlannedTask) -> dict[str, str]:
    """The variables of a task's GPUs; a container's GPUs have numbers from 0."""
    if not task.gpus:
        return {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "-1"}
    numbers = ",".join(map(str, range(len(task.gpus))))
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": numbers}


def _limits(task: PlannedTask) -> dict[str, str | int]:
    limits: dict[str, str | int] = {}
    if task.cpus is not None:
        limits["cpu"] = f"{math.ceil(task.cpus * 1000)}m"
    if task.memory_bytes is not None:
        limits["memory"] = f"{math.ceil(task.memory_bytes / MIB)}Mi"
    if task.gpus:
        limits[GPU] = len(task.gpus)
    return limits
