"""The boot of an environment on Kubernetes: creates its objects, and waits for its agents."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lab.backends.boot import Boot
from lab.backends.kubernetes import NAME, status
from lab.backends.kubernetes.api import Api, ApiError
from lab.backends.kubernetes.environment import (
    EnvironmentRecord,
    KubernetesEnvironment,
    PodRecord,
    StateDir,
)
from lab.backends.kubernetes.pods import Object, base_name
from lab.backends.kubernetes.render import QUEUE, Objects, render
from lab.backends.kubernetes.volume import CLAIM, PROBLEMS, START_S, last_lines
from lab.backends.options import Values
from lab.backends.rendered_file import Rendering
from lab.backends.state import state_errors
from lab.base.errors import InputError, LabError
from lab.base.image_digest import digest
from lab.base.log import LOG

_POLL_S: Final = 1.0


@dataclass(eq=False)
class KubernetesBoot(Boot[KubernetesEnvironment]):
    """The steps that create the objects, and wait for the agents. An interrupt removes all.

    Attributes:
        own: The backend's own options.
    """

    backend = NAME
    own: Values
    _environment: KubernetesEnvironment | None = None
    _kept: EnvironmentRecord | None = None

    def __post_init__(self) -> None:
        self._state_dir = StateDir.of(self.plan.name)

    def prepare(self) -> None:
        """Refuse an environment that exists; use a run volume that is kept."""
        record = self._state_dir.read()
        if record is None:
            return
        if not self._state_dir.kept.exists():
            name = self.plan.name
            raise LabError(
                f"the kubernetes environment {name!r} already exists, in {record.namespace}",
                f"remove it with `lab down {name}`",
            )
        self._kept = record

    def start(self, lock: int | None, hold: int | None) -> KubernetesEnvironment:
        """Create the objects, and wait until every agent runs; see `Boot`."""
        del lock, hold
        api = Api(namespace=str(self.own["namespace"]))
        owner = secrets.token_hex(4) if self._kept is None else self._kept.owner
        objects = Objects(self.plan, self.own, owner=owner)
        kinds = [manifest["kind"] for manifest in objects.all() if manifest["kind"] != CLAIM]
        record = EnvironmentRecord(
            project=self.plan.name,
            cluster_sha256=self.plan.cluster_sha256,
            root=str(self.root),
            runtime=self.plan.runtime,
            sources_sha256=digest(),
            context=api.context,
            namespace=api.namespace,
            owner=owner,
            own_claim=not self.own["claim"],
            kinds=(*dict.fromkeys(reversed(kinds)), "Pod"),
            reader=objects.pods.reader(),
            tasks=tuple(
                PodRecord(task.name, task.node, objects.spec[task.job][task.index], len(task.gpus))
                for task in self.plan.tasks
            ),
        )
        text = render(self.plan, self.own, Rendering("the config"), owner=owner)
        with state_errors():
            self._state_dir.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._state_dir.file.write_text(text, encoding="utf-8")
            self._state_dir.write(record)
        environment = self._environment = KubernetesEnvironment(self._state_dir, record)
        _create(environment, objects.shared())
        LOG.info(f"kubernetes: starting {self.plan.name} in {api.namespace}")
        command = ["python", "-m", "lab.base.image_digest"]
        if environment.run_volume.run(command).decode().strip() != digest():
            image = record.reader["spec"]["containers"][0]["image"]
            raise InputError(
                f"the image {image} has a different version of lab's code",
                "rebuild it, push it, and pass it with -o image=NAME",
            )
        _create(environment, objects.tasks())
        _wait(environment, [task.name for task in self.plan.tasks])
        return environment

    def undo(self) -> None:
        """Remove what a failed boot made; an error here must not hide the boot's error."""
        if self._environment is None:
            return
        try:
            self._environment.end(keep_volume=self._kept is not None)
        except LabError as error:
            LOG.warning(f"{self.plan.name} is not fully removed: {error}; run `lab down`")


def _create(environment: KubernetesEnvironment, objects: Sequence[Object]) -> None:
    """Create objects, except a volume claim that is kept from before.

    Raises:
        LabError: The server refuses one.
    """
    api = environment.api
    claims = {claim["metadata"]["name"] for claim in api.list(CLAIM, environment.labels)}
    for manifest in objects:
        if manifest["kind"] != CLAIM or manifest["metadata"]["name"] not in claims:
            api.create(manifest)


def _wait(environment: KubernetesEnvironment, tasks: Sequence[str]) -> None:
    """Wait until all agents run; report why pods wait.

    Raises:
        LabError: A pod will never run, or does not start its agent in time.
    """
    shown, began = "", time.monotonic()
    while True:
        pods = environment.pods()
        waiting = [task for task in tasks if task not in pods]
        waiting += [task for task, pod in pods.items() if not status.is_ready(pod)]
        if not waiting:
            return
        task = waiting[0]
        line = f"{task}: {status.detail(pods[task]) if task in pods else _absence(environment)}"
        for name, pod in pods.items():
            if (reason := status.failure(pod)) is not None:
                raise LabError(f"{name}: {reason}{last_lines(environment.api, pod)}", PROBLEMS)
        if task not in pods:
            _raise_for_missing(environment, task)
        if any(name not in pods or status.is_waiting(pods[name]) for name in waiting):
            began = time.monotonic()  # a queue has no limit
        if time.monotonic() - began > START_S:
            raise LabError(f"{line}: its agent did not start", f"see `lab logs {task}`")
        if line != shown:
            LOG.info(line)
            shown = line
        time.sleep(_POLL_S)


def _absence(environment: KubernetesEnvironment) -> str:
    """Why a task has no pod yet."""
    for jobset in environment.api.list("JobSet", environment.labels):
        if jobset["spec"].get("suspend") and QUEUE in jobset["metadata"]["labels"]:
            return f"it is waiting in the Kueue queue {jobset['metadata']['labels'][QUEUE]}"
    return "it has no pod yet"


def _raise_for_missing(environment: KubernetesEnvironment, task: str) -> None:
    """Raise the error if Kubernetes refuses to create a pod: by a quota, for example."""
    api, reader = environment.api, environment.run_volume.name
    pods = [pod["metadata"] for pod in api.list("Pod", environment.labels)]
    starts = [pod["creationTimestamp"] for pod in pods if pod["name"] == reader]
    try:
        events = api.list("Event", {}, [("fieldSelector", "reason=FailedCreate")])
    except ApiError:
        return  # not every user may read them
    own = f"{base_name(environment.project)}-"
    for event in events:
        at = event["metadata"]["creationTimestamp"]
        is_own = f"{event['involvedObject']['name']}-".startswith(own)
        if is_own and any(start <= at for start in starts):  # not of an earlier environment
            raise LabError(f"{task} has no pod: {event['message']}", PROBLEMS)
