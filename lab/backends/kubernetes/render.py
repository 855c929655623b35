"""Renders a plan as objects of Kubernetes: the same plan always gives the same bytes.

The flavour `jobset` is one JobSet with a replicated job for each job of the cluster. The flavour
`plain` is a Job for each task, and a headless Service that gives their pods names.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter

from lab.backends.kubernetes.pods import PROJECT, Object, Pods, base_name
from lab.backends.names import KUBERNETES
from lab.backends.options import Values
from lab.backends.rendered_file import PLAIN, Rendering, scheduled_header
from lab.backends.yaml_text import TEXT, quotes
from lab.config.validation import RUN_SERVICE
from lab.experiments.registry import EXPERIMENTS
from lab.placement.plan import Plan, PlannedRun, PlannedTask

_DNS: Final = 53
QUEUE: Final = "kueue.x-k8s.io/queue-name"
_HASH: Final = "lab.cluster-sha256"


def render(plan: Plan, options: Values, rendering: Rendering = PLAIN, *, owner: str = "") -> str:
    """Render a plan as a file for `kubectl apply`.

    Args:
        plan: The plan, with the final runtime.
        options: The options.
        rendering: The run, and the path of the config.
        owner: The label of an environment's objects; "": they have none.
    """
    yaml = YAML()
    yaml.Representer = _Representer
    yaml.width = sys.maxsize
    yaml.indent(mapping=2, sequence=4, offset=2)
    output = StringIO()
    for each in objects_of(plan, options, rendering.run, owner=owner).all():
        output.write("---\n")
        yaml.dump(each, output)
    header = scheduled_header(
        plan,
        KUBERNETES,
        options,
        rendering,
        "kubectl apply --filename FILE    {0}",
        "kubectl delete --filename FILE   removes it, and a volume claim of its own",
    )
    return header + output.getvalue()


def objects_of(
    plan: Plan, options: Values, run: PlannedRun | None = None, *, owner: str = ""
) -> Objects:
    """Return the objects of a plan; see `render`."""
    made = _Plain if options["flavour"] == "plain" else _JobSet
    return made(plan, options, run, owner)


class _Representer(RoundTripRepresenter):
    """Represents the values of an object."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True

    def represent_text(self, text: str) -> ScalarNode:
        return self.represent_scalar(TEXT, text, style=quotes(text))


_Representer.add_representer(str, _Representer.represent_text)


class Objects(ABC):
    """Makes the objects of a plan.

    Attributes:
        spec: TensorFlow's cluster spec.
    """

    def __init__(self, plan: Plan, options: Values, run: PlannedRun | None, owner: str) -> None:
        self._plan, self._options, self._run = plan, options, run
        self._name = base_name(plan.name)
        self.spec: dict[str, list[str]] = {}
        for task in plan.tasks:
            address = f"{self._host(task)}.{self._name}:{task.port}"
            self.spec.setdefault(task.job, []).append(address)
        self._pods = Pods(plan, options, self.spec, owner)

    def all(self) -> list[Object]:
        """Return all objects, in the order in which they are created."""
        return [*self.shared(), *self.tasks()]

    def shared(self) -> list[Object]:
        """Return the objects that exist before pods: volume claim and network policy."""
        claim = [] if self._options["claim"] else [self._claim()]
        return self._described([*claim, self._policy()])

    def tasks(self) -> list[Object]:
        """Return the objects that start the pods of all tasks."""
        return self._described(self._tasks())

    def reader(self) -> Object:
        """Return the pod in which the client reads and writes the run volume."""
        return self._described([self._pods.reader()])[0]

    def _described(self, made: list[Object]) -> list[Object]:
        for each in made:
            each["metadata"]["annotations"] = {_HASH: self._plan.cluster_sha256}
        return made

    @abstractmethod
    def _host(self, task: PlannedTask) -> str:
        """The name of a task's pod in the subdomain of the plan."""

    @abstractmethod
    def _tasks(self) -> list[Object]:
        """The objects that start the pods of all tasks."""

    def _claim(self) -> Object:
        mode = "ReadWriteOnce" if self._options["nodes"] == "one" else "ReadWriteMany"
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": self._pods.metadata(self._pods.claim),
            "spec": {
                "accessModes": [mode],
                "resources": {"requests": {"storage": "10Gi"}},
            },
        }

    def _policy(self) -> Object:
        """Only the pods of the plan reach each other; they reach nothing else but DNS."""
        own = {"podSelector": {"matchLabels": {PROJECT: self._plan.name}}}
        system = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
        ports = [{"protocol": each, "port": _DNS} for each in ("UDP", "TCP")]
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": self._pods.metadata(self._name),
            "spec": {
                **own,
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [own]}],
                "egress": [
                    {"to": [own]},
                    {"to": [{"namespaceSelector": system}], "ports": ports},
                ],
            },
        }


class _Plain(Objects):
    """A Job for each task, and a headless Service."""

    def _host(self, task: PlannedTask) -> str:
        return task.name

    def _tasks(self) -> list[Object]:
        pods, once = self._pods, self._run is not None
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": pods.metadata(self._name),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {PROJECT: self._plan.name},
            },
        }
        templates = {
            task.name: pods.agent(task, is_indexed=False, once=once, hostname=task.name)
            for task in self._plan.tasks
        }
        if self._run is not None:
            templates[RUN_SERVICE] = pods.run(self._run)
        jobs = [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": pods.metadata(f"{self._name}-{name}"),
                # The hostname of an indexed Job's pod would be another.
                "spec": {"backoffLimit": 0, "template": template},
            }
            for name, template in templates.items()
        ]
        return [service, *jobs]


class _JobSet(Objects):
    """One JobSet. The tasks of a job that have the same size are the pods of an indexed Job."""

    def _host(self, task: PlannedTask) -> str:
        suffix = f"0-{task.index}" if _is_uniform(self._plan, task.job) else f"{task.index}-0-0"
        return f"{self._name}-{task.job}-{suffix}"

    def _tasks(self) -> list[Object]:
        queue = str(self._options["queue"])
        run = self._run
        ends = {"successPolicy": {"operator": "All", "targetReplicatedJobs": [RUN_SERVICE]}}
        return [
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "metadata": self._pods.metadata(self._name, {QUEUE: queue} if queue else None),
                "spec": {
                    "network": {
                        "enableDNSHostnames": True,
                        "subdomain": self._name,
                        "publishNotReadyAddresses": True,
                    },
                    **(ends if run is not None else {}),
                    # The agents restart programs. A pod that ends early fails the whole.
                    "failurePolicy": {"maxRestarts": 0},
                    "replicatedJobs": [
                        *_in_order(self._replicated(), self._services()),
                        *([_replicated(RUN_SERVICE, self._pods.run(run))] if run else []),
                    ],
                },
            }
        ]

    def _services(self) -> Sequence[str]:
        run = self._run
        return ("ps",) if run is None else EXPERIMENTS[run.arguments[0]].services

    def _replicated(self) -> Iterator[tuple[str, Object]]:
        """The job of each replicated job, and the replicated job."""
        once = self._run is not None
        for job in dict.fromkeys(task.job for task in self._plan.tasks):
            tasks = [task for task in self._plan.tasks if task.job == job]
            if _is_uniform(self._plan, job):
                template = self._pods.agent(tasks[0], is_indexed=True, once=once)
                yield job, _replicated(job, template, len(tasks))
                continue
            for task in tasks:
                template = self._pods.agent(task, is_indexed=False, once=once)
                yield job, _replicated(task.name, template)


def replicated_jobs(plan: Plan) -> int:
    """Return the number of replicated jobs of a plan's JobSet, with that of a run."""
    jobs = {task.job if _is_uniform(plan, task.job) else task.name for task in plan.tasks}
    return len(jobs) + 1


def _is_uniform(plan: Plan, job: str) -> bool:
    """Whether all tasks of a job have the same size, so that they have one template."""
    sizes = {
        (task.cpus, task.memory_bytes, len(task.gpus)) for task in plan.tasks if task.job == job
    }
    return len(sizes) == 1


def _in_order(found: Iterator[tuple[str, Object]], services: Sequence[str]) -> Iterator[Object]:
    """Yield services first. Each waits for the one before it, and the others for the last one.

    A replicated job can wait for one other only.
    """
    each = [*found]
    last = ""
    for job, replicated in sorted(each, key=lambda one: one[0] not in services):
        if last:
            replicated["dependsOn"] = [{"name": last, "status": "Ready"}]
        if job in services:
            last = replicated["name"]
        yield replicated


def _replicated(name: str, template: Object, pods: int = 1) -> Object:
    indexed = {"completionMode": "Indexed", "completions": pods, "parallelism": pods}
    return {
        "name": name,
        "replicas": 1,
        "template": {"spec": {**indexed, "backoffLimit": 0, "template": template}},
    }
