"""The pods of a plan, as the restricted Pod Security Standard permits them.

A pod runs the agent of one task, as everywhere: `python -m lab.task.agent`. The agent starts the
programs, with TF_CONFIG or the variables of their framework.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lab.backends.options import Values
from lab.base import variables as var
from lab.base.units import MIB
from lab.cluster.placement.plan import Plan, PlannedRun, PlannedTask
from lab.protocol.runtimes import NO_GPU, RUNTIMES

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

_HASH: Final = "lab.cluster-sha256"
_HOST: Final = "kubernetes.io/hostname"
_RUNS: Final = "/runs"
_USER: Final = 1000
_SHM: Final = 1024 * MIB
"""The user of the image."""

_LEAST: Final = {"cpu": "100m", "memory": "256Mi"}
"""What a pod without limits requests, so that a node with no room for it is not selected."""

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
_AWAIT: Final = """\
left=3600
for task in {}; do
  until test -e "$LAB_RUNS/agents/$task.json"; do
    if [ $((left -= 1)) -lt 0 ]; then
      echo "error: $task did not start within an hour; see kubectl describe pods" >&2
      exit 1
    fi
    sleep 1
  done
done
exec python -m lab.task.agent.autorun
"""
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
        owner: The label of all objects of one environment; "" for a rendered file.
    """

    plan: Plan
    options: Values
    owner: str

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all objects."""
        return {PROJECT: self.plan.name, **({OWNER: self.owner} if self.owner else {})}

    @property
    def claim(self) -> str:
        """The name of the volume claim."""
        return str(self.options["claim"]) or f"{base_name(self.plan.name)}-runs"

    @property
    def variables(self) -> dict[str, str]:
        """The variables of all pods, except for the cluster."""
        runs = directory_of(self.plan.name, self.owner)
        return {
            var.LAB_PROJECT: self.plan.name,
            var.LAB_RUNTIME: self.plan.runtime,
            var.LAB_RUNS: runs,
            # The client copies those of the project; a rendered file has those of the image.
            var.LAB_SCRIPTS: f"{runs}/{SCRIPTS}" if self.owner else "/lab/scripts",
            var.LAB_DATA: "/lab/data",
            # The pods are on different hosts, whose locks and clocks differ.
            var.LAB_CLOCK: runs,
        }

    def object(self, api: str, kind: str, name: str, **content: Any) -> Object:  # noqa: ANN401
        """Return an object with the labels of all objects."""
        space = str(self.options["namespace"])
        metadata = {
            "name": name,
            **({"namespace": space} if space else {}),
            "labels": self.labels,
            "annotations": {_HASH: self.plan.cluster_sha256},
        }
        return {"apiVersion": api, "kind": kind, "metadata": metadata, **content}

    def agent(self, tasks: Sequence[PlannedTask], *, once: bool) -> Object:
        """Return the template of the pod of a task, or of the pods of several of one size.

        Args:
            tasks: The tasks. If there are several, the index of a pod gives its task.
            once: Whether the agent ends with its first run.
        """
        task = tasks[0]
        labels, named = {JOB: task.job, TASK: task.name}, _environ({var.LAB_TASK: task.name})
        if len(tasks) > 1:
            labels, named = {JOB: task.job}, _index(task)
        place = {"hostname": task.name, "subdomain": base_name(self.plan.name)}
        if self.options["flavour"] != "plain":  # JobSet sets it
            place = {}
        start = f"{_SHELL}python -m lab.task.agent{' --once' if once else ''}"
        container = self._container(start, named, task) | self._shared | _probe(_STARTED)
        return self._template(container, labels, place, task.shm_bytes or _SHM)

    def run(self, run: PlannedRun) -> Object:
        """Return the template of the pod that submits the run and ends with it."""
        environ = {var.LAB_RUN: run.command, var.LAB_RUN_TERMS: run.terms, var.LAB_ONCE: "1"}
        command = _AWAIT.format(" ".join(task.name for task in self.plan.tasks))
        return self._template(self._container(command, _environ(environ)) | self._shared, {}, {})

    def reader(self) -> Object:
        """Return the pod in which the client reads and writes the run volume.

        It needs only the volume claim, which may outlive all other objects.
        """
        command = f"{_SHELL}python -m lab.task.node.anchor"
        container = self._container(command, _environ(self.variables)) | _probe(_HAS_VOLUME)
        spec = self._template(container, {}, {})["spec"]
        return self.object("v1", "Pod", f"{base_name(self.plan.name)}-volume", spec=spec)

    @property
    def _shared(self) -> Object:
        return {"envFrom": [{"configMapRef": {"name": base_name(self.plan.name)}}]}

    def _template(
        self, container: Object, labels: Mapping[str, str], spec: Object, shm: int = _SHM
    ) -> Object:
        size = f"{math.ceil(shm / MIB)}Mi"
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
                    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}},
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

    def _container(
        self, command: str, environ: list[Object], task: PlannedTask | None = None
    ) -> Object:
        image = str(self.options["image"]) or RUNTIMES[self.plan.runtime].image(
            gpus=self.plan.has_gpus
        )
        host = {"fieldRef": {"fieldPath": "spec.nodeName"}}
        return {
            "name": "lab",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", command],
            "env": [{"name": var.LAB_NODE, "valueFrom": host}, *environ, *_environ(_gpus(task))],
            "resources": _resources(task),
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


def _gpus(task: PlannedTask | None) -> Mapping[str, str]:
    """The variables of a pod's GPUs; a container's GPUs have numbers from 0."""
    if task is None or not task.gpus:
        return NO_GPU
    devices = ",".join(map(str, range(len(task.gpus))))
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": devices}


def _resources(task: PlannedTask | None) -> Object:
    limits: dict[str, str | int] = {}
    if task is not None and task.cpus is not None:
        limits["cpu"] = f"{math.ceil(task.cpus * 1000)}m"
    if task is not None and task.memory_bytes is not None:
        limits["memory"] = f"{math.ceil(task.memory_bytes / MIB)}Mi"
    if task is not None and task.gpus:
        limits[GPU] = len(task.gpus)
    return {"requests": {**_LEAST, **limits}, **({"limits": limits} if limits else {})}
