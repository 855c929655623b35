"""Renders a plan as objects of Kubernetes: the same plan always gives the same bytes.

The flavour `jobset` is one JobSet with a replicated job for each job of the cluster. The flavour
`plain` is a Job for each task, and a headless Service that gives their pods names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from lab.backends.kubernetes import NAME
from lab.backends.kubernetes.pods import PROJECT, Object, Pods, base_name
from lab.backends.options import Values
from lab.backends.rendered_file import Rendering, header
from lab.backends.yaml_text import dumped
from lab.base import variables as var
from lab.base.errors import InputError
from lab.base.units import MIB
from lab.cluster.placement.plan import Plan, PlannedRun, PlannedTask

QUEUE: Final = "kueue.x-k8s.io/queue-name"
_RUN: Final = "run"


def render(plan: Plan, options: Values, rendering: Rendering, *, owner: str = "") -> str:
    """Render a plan as a file for `kubectl apply`.

    Args:
        plan: The plan, with the final runtime.
        options: The options.
        rendering: The run, and the path of the config.
        owner: The label of an environment's objects, or "".

    Raises:
        InputError: An object is larger than the API server permits.
    """
    objects = Objects(plan, options, rendering.run, owner=owner)
    usage = (
        f"kubectl apply --server-side --filename FILE    {rendering.does}",
        "kubectl delete --filename FILE                 removes it, and a volume claim of its own",
    )
    return header(plan, NAME, options, rendering, *usage) + dumped(objects.all())


class Objects:
    """Makes the objects of a plan.

    Attributes:
        pods: Makes the pods.
        spec: TensorFlow's cluster spec.
    """

    def __init__(
        self, plan: Plan, options: Values, run: PlannedRun | None = None, *, owner: str = ""
    ) -> None:
        self._plan, self._options, self._run = plan, options, run
        self._name = base_name(plan.name)
        self.pods = Pods(plan, options, owner)
        self._is_plain = options["flavour"] == "plain"
        self._groups = groups_of(plan, is_plain=self._is_plain)
        hosts = {
            task.name: task.name if self._is_plain else f"{self._name}-{group}-0-{index}"
            for group, tasks in self._groups.items()
            for index, task in enumerate(tasks)
        }
        self.spec = plan.cluster_spec(
            [f"{hosts[task.name]}.{self._name}:{task.port}" for task in plan.tasks]
        )

    def all(self) -> list[Object]:
        """Return all objects, in the order in which they are created.

        Raises:
            InputError: One is larger than the API server permits.
        """
        objects = [*self.shared(), *self.tasks()]
        for manifest in objects:
            if (size := len(json.dumps(manifest))) > MIB:
                name = f"{manifest['kind']} {manifest['metadata']['name']}"
                raise InputError(
                    f"{name} has {size / MIB:.1f} MiB, but an object can have at most 1 MiB",
                    "give all tasks of a job the same cpus, memory and gpus, use -o flavour=plain,"
                    " or fewer tasks",
                )
        return objects

    def shared(self) -> list[Object]:
        """Return the objects that exist before pods: volume claim, policy, variables."""
        claim = [] if self._options["claim"] else [self._claim()]
        variables = {var.LAB_CLUSTER: json.dumps(self.spec), **self.pods.variables}
        return [
            *claim,
            self._policy(),
            self.pods.object("v1", "ConfigMap", self._name, data=variables),
        ]

    def tasks(self) -> list[Object]:
        """Return the objects that start the pods of all tasks."""
        return self._plain() if self._is_plain else [self._jobset()]

    def _claim(self) -> Object:
        mode = "ReadWriteOnce" if self._options["nodes"] == "one" else "ReadWriteMany"
        spec = {"accessModes": [mode], "resources": {"requests": {"storage": "10Gi"}}}
        return self.pods.object("v1", "PersistentVolumeClaim", self.pods.claim, spec=spec)

    def _policy(self) -> Object:
        """Only the pods of the plan reach each other; they reach nothing else but DNS.

        Its server may be a pod of any namespace or, as NodeLocal DNS, a process of the node.
        """
        own = {"podSelector": {"matchLabels": {PROJECT: self._plan.name}}}
        openshift = {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}
        spec = {
            **own,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [own]}],
            "egress": [
                {"to": [own]},
                {"ports": _ports(53)},
                {"to": [{"namespaceSelector": openshift}], "ports": _ports(5353)},
            ],
        }
        return self.pods.object("networking.k8s.io/v1", "NetworkPolicy", self._name, spec=spec)

    def _templates(self) -> dict[str, Object]:
        """The template of the pods of each group."""
        once = self._run is not None
        return {name: self.pods.agent(tasks, once=once) for name, tasks in self._groups.items()}

    def _plain(self) -> list[Object]:
        """A Job for each task, and a headless Service."""
        spec = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {PROJECT: self._plan.name},
        }
        service = self.pods.object("v1", "Service", self._name, spec=spec)
        run = {_RUN: self.pods.run(self._run)} if self._run is not None else {}
        # The hostname of an indexed Job's pod would be another.
        jobs = [
            self.pods.object("batch/v1", "Job", f"{self._name}-{name}", spec=_job(template))
            for name, template in {**self._templates(), **run}.items()
        ]
        return [service, *jobs]

    def _jobset(self) -> Object:
        """One JobSet. The tasks of a job that have the same size are the pods of an indexed Job."""
        run, jobs = self._run, [*self._replicated()]
        ends = {}
        if run is not None:
            ends = {"successPolicy": {"operator": "All", "targetReplicatedJobs": [_RUN]}}
            jobs.append(_replicated(_RUN, self.pods.run(run)))
        spec = {
            "network": {
                "enableDNSHostnames": True,
                "subdomain": self._name,
                "publishNotReadyAddresses": True,
            },
            **ends,
            # The agents restart programs. A pod that ends early fails the whole.
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": jobs,
        }
        jobset = self.pods.object("jobset.x-k8s.io/v1alpha2", "JobSet", self._name, spec=spec)
        if queue := self._options["queue"]:
            jobset["metadata"]["labels"][QUEUE] = queue
        return jobset

    def _replicated(self) -> Iterator[Object]:
        """Yield the replicated jobs of the tasks, services first.

        A replicated job can wait for one other only. So each service waits for the one before it,
        and the other jobs for the last one.
        """
        run = self._run
        services = run.services if run is not None else ("ps",)
        templates, last = self._templates(), ""
        for name, tasks in sorted(
            self._groups.items(), key=lambda group: group[1][0].job not in services
        ):
            replicated = _replicated(name, templates[name], len(tasks))
            if last:
                replicated["dependsOn"] = [{"name": last, "status": "Ready"}]
            if tasks[0].job in services:
                last = name
            yield replicated


def groups_of(plan: Plan, *, is_plain: bool) -> dict[str, list[PlannedTask]]:
    """Return the tasks that share a Job, by its name: those of one job, if they have one size.

    Args:
        plan: The plan.
        is_plain: Whether each task has a Job of its own.
    """
    sizes: dict[str, set[object]] = {}
    for task in plan.tasks:
        size = (task.cpus, task.memory_bytes, task.shm_bytes, len(task.gpus))
        sizes.setdefault(task.job, set()).add(size)
    groups: dict[str, list[PlannedTask]] = {}
    for task in plan.tasks:
        alone = is_plain or len(sizes[task.job]) > 1
        groups.setdefault(task.name if alone else task.job, []).append(task)
    return groups


def _ports(number: int) -> list[Object]:
    return [{"protocol": protocol, "port": number} for protocol in ("UDP", "TCP")]


def _job(template: Object, **indexed: object) -> Object:
    return {**indexed, "backoffLimit": 0, "template": template}


def _replicated(name: str, template: Object, pods: int = 1) -> Object:
    job = _job(template, completionMode="Indexed", completions=pods, parallelism=pods)
    return {"name": name, "replicas": 1, "template": {"spec": job}}
