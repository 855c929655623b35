"""An environment on Kubernetes: pods, and a run volume that a small pod of its own reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from threading import Event
from typing import Any, Final

from lab.backends.environment import TaskInfo
from lab.backends.kubernetes import NAME, status
from lab.backends.kubernetes.api import Api, Away
from lab.backends.kubernetes.pods import OWNER, PROJECT, Object
from lab.backends.kubernetes.volume import CLAIM, POLL_S, PodVolume
from lab.backends.log_tail import merged_lines
from lab.backends.recorded import EnvironmentDir, Record, Recorded, TaskRecord
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.base.threads import in_background
from lab.protocol.volume import Chunk

_POLL_S: Final = 1.0
_LOOK_S: Final = 3.0
"""Seconds between two looks at the pods while a run is followed."""

_AWAY_S: Final = 120.0
"""Seconds for which a client that follows a run waits for the API server."""

_END_S: Final = 120.0
"""Seconds that all pods have to end."""


@dataclass(frozen=True, slots=True)
class PodRecord(TaskRecord):
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
    tasks: tuple[PodRecord, ...]


class StateDir(EnvironmentDir[EnvironmentRecord]):
    """The state directory of one environment; the run volume is on the cluster.

    Attributes:
        file: The rendered objects.
    """

    backend = NAME
    record_type = EnvironmentRecord
    hint = "remove what `kubectl get all,pvc,netpol -l lab.project` lists"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.file = directory / "cluster.k8s.yaml"


class KubernetesEnvironment(Recorded[EnvironmentRecord]):
    """The objects with the labels of one environment, and its run volume.

    Kubernetes gives each pod GPUs of its own, by their number. The network policy closes the pods'
    network.
    """

    backend = NAME
    is_local = False
    state_dirs = StateDir
    _state_dir: StateDir

    def __init__(self, state_dir: StateDir, record: EnvironmentRecord) -> None:
        super().__init__(state_dir, record)
        self.labels = {PROJECT: record.project, OWNER: record.owner}

    @cached_property
    def api(self) -> Api:
        """The namespace of the environment."""
        return Api(self._record.context, self._record.namespace)

    @cached_property
    def run_volume(self) -> PodVolume:  # type: ignore[override]  # mypy wants a variable
        """The run volume, which the client reads and writes in a pod of its own."""
        record = self._record
        return PodVolume(self.api, record.reader, record.own_claim, self.folder)

    @property
    def is_up(self) -> bool:
        """Whether a pod of a task runs."""
        return any(map(status.is_running, self.pods().values()))

    def pods(self) -> dict[str, Object]:
        """The newest pod of each task."""
        pods = sorted(
            self.api.list("Pod", self.labels), key=lambda pod: pod["metadata"]["creationTimestamp"]
        )
        return {task: pod for pod in pods if (task := status.task_of(pod))}

    def tasks(self) -> list[TaskInfo]:
        """All tasks, in the plan's order."""
        pods = self.pods()
        return [
            TaskInfo(
                task=record.task,
                node=record.node,
                address=record.address,
                gpus=tuple(map(str, range(record.gpus))),
                alive=record.task in pods and status.is_ready(pods[record.task]),
                detail=_detail(pods.get(record.task)),
            )
            for record in self._record.tasks
        ]

    # ---- the run volume

    def clock_offset_s(self) -> float:
        """Seconds by which the run volume's clock is ahead of this host's; see `Environment`.

        It is 0 if the difference is smaller than the duration of the call.
        """
        began = time.time()
        now = float(self.run_volume.call("time"))
        return max(0.0, now - time.time()) + min(0.0, now - began)

    def stream(
        self,
        run_id: str,
        offsets: Mapping[str, int],
        *,
        follow: bool,
        all_sizes: bool = False,
        rest: bool = False,
    ) -> Iterator[Chunk | None]:
        """Stream the files of a run; see `Environment`. Wait for an API server that is away."""
        collected, until = dict(offsets), 0.0
        while True:
            try:
                chunks = super().stream(
                    run_id, collected, follow=follow, all_sizes=all_sizes, rest=rest
                )
                for chunk in self._checked(chunks):
                    until = 0.0
                    if chunk is not None and not chunk.fault:
                        collected[chunk.path] = (chunk.offset or 0) + len(chunk.data)
                    yield chunk
            except Away as error:
                if not follow or (until and time.monotonic() > until):
                    raise
                if not until:
                    LOG.warning(f"{error.what}; trying again")
                    until = time.monotonic() + _AWAY_S
            else:
                return
            yield None
            time.sleep(_POLL_S)

    def _checked(self, chunks: Iterator[Chunk | None]) -> Iterator[Chunk | None]:
        """Yield the chunks until no task's pod runs; the run volume's own pod keeps running."""
        looked, reported, causes, closed = time.monotonic(), set[str](), dict[str, str](), Event()
        in_background(partial(self._watch, causes, closed))
        try:
            for chunk in chunks:
                yield chunk
                if chunk is None and time.monotonic() - looked > _LOOK_S:
                    self._check_up(reported, causes)
                    looked = time.monotonic()
        finally:
            closed.set()
            # An agent may have recorded its end before the next check.
            for task in sorted(causes.keys() - reported):
                LOG.warning(f"{task}: {causes[task]}")

    def _watch(self, causes: dict[str, str], closed: Event) -> None:
        """Watch the pods, and note why Kubernetes ends them.

        A deleted pod shows the cause only until it is gone, a second later. The agent of an evicted
        one may have recorded its end, and with it that of the run, before the next check.

        Args:
            causes: The causes by their tasks; it changes.
            closed: Ends the watch.
        """
        while not closed.is_set():
            with suppress(LabError):  # without an answer, or without this right
                for pod in self.api.watch_pods(self.labels):
                    if closed.is_set():
                        return
                    task = status.task_of(pod)
                    if task and task not in causes and status.is_ended_by_kubernetes(pod):
                        causes[task] = status.detail(pod) + self._drain_of(pod)
            closed.wait(_LOOK_S)

    def _drain_of(self, pod: Object) -> str:
        """Whether a pod's node is drained, for a message; not every user may read nodes."""
        node = pod["spec"].get("nodeName")
        with suppress(LabError):
            if node and self.api.node(node)["spec"].get("unschedulable"):
                return ": its node is cordoned, as by `kubectl drain`"
        return ""

    def _check_up(self, reported: set[str], causes: Mapping[str, str]) -> None:
        """Report the tasks whose agents have ended, and check that one runs.

        Args:
            reported: The tasks that are reported already; it changes.
            causes: Why Kubernetes has ended pods, by their tasks.

        Raises:
            LabError: No agent runs; the message has the cause that Kubernetes names.
        """
        pods = self.pods()
        ended = {
            record.task: causes.get(record.task) or _detail(pods.get(record.task))
            for record in self._record.tasks
            if not status.is_running(pods.get(record.task))
        }
        if len(ended) == len(self._record.tasks):
            task, why = next(iter(ended.items()))
            raise LabError(
                f"the kubernetes environment {self.project!r} has stopped: {task}: {why}",
                "its runs stay on its run volume until `lab down`",
            )
        for task, why in ended.items():
            if task not in reported:
                LOG.warning(f"{task}: {why}")
        reported.update(ended)

    # ---- its tasks

    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        """Lines of the agents' standard output, `worker-0  | …`; see `Environment`.

        Raises:
            InputError: There is no such task.
        """
        pods = self.pods()
        outputs = {
            task: self.api.logs(
                pods[task]["metadata"]["name"],
                follow=follow,
                tail=tail,
                since=since,
            )
            for task in self.selected({each.task: each for each in self._record.tasks}, tasks)
            if task in pods
        }
        return merged_lines(outputs)

    def shell(self, task: str) -> list[str]:
        """The command line that opens a shell in the task's container.

        Raises:
            InputError: There is no such task.
            LabError: The pod does not run.
        """
        self.known_task({record.task: record for record in self._record.tasks}, task)
        pod = self.pods().get(task)
        if pod is None or not status.is_running(pod):
            raise LabError(f"{task} is not running: {_detail(pod)}", "boot it with `lab up`")
        context = ["--context", self.api.context] if self.api.context else []
        name = str(pod["metadata"]["name"])
        place = ["--namespace", self.api.namespace, "exec", "--stdin", "--tty", name]
        return ["kubectl", *context, *place, "--", "bash"]

    def provenance(self) -> dict[str, str]:
        """What really ran: the image with its digest, the version of Kubernetes, the nodes."""
        pods = self.pods().values()
        ids = [str(status.container(pod).get("imageID", "")) for pod in pods]
        nodes = {str(pod["spec"]["nodeName"]) for pod in pods if "nodeName" in pod["spec"]}
        return {
            "image": str(self._record.reader["spec"]["containers"][0]["image"]),
            "image_id": next(filter(None, ids), ""),
            "runtime": self.runtime,
            "kubernetes": self.api.version(),
            "nodes": " ".join(sorted(nodes)),
        }

    def boot_file(self) -> tuple[str, str]:
        """`cluster.k8s.yaml`: the rendered objects."""
        return self._state_dir.file.name, self._state_dir.file.read_text(encoding="utf-8")

    # ---- the end

    def end(self, *, keep_volume: bool = False) -> None:
        """Remove the pods, then the run volume, then the record; see `Environment`.

        Raises:
            LabError: The server refuses, or pods do not end.
        """
        if self._record.own_claim or keep_volume:
            self._remove(self._record.kinds)
        else:  # the pod of the run volume is needed to remove the directory
            self._remove(self._record.kinds, keep=self.run_volume.name)
            self.run_volume.remove_directory()
            self._remove(["Pod"])
        if self._record.own_claim and not keep_volume:
            self._remove([CLAIM])
        self._state_dir.remove(keep_volume=keep_volume)

    def _remove(self, kinds: Sequence[str], keep: str = "") -> None:
        """Delete objects of some kinds, except the one to keep, and wait until they are gone.

        Raises:
            LabError: One is not gone in time.
        """
        deleted: set[str] = set()
        until = time.monotonic() + _END_S
        while True:
            resources = [each for kind in kinds for each in self.api.list(kind, self.labels)]
            left = [resource for resource in resources if resource["metadata"]["name"] != keep]
            if not left:
                return
            if time.monotonic() > until:
                name = f"{left[0]['kind']} {left[0]['metadata']['name']}"
                why = status.detail(left[0]) if left[0]["kind"] == "Pod" else "it still exists"
                raise LabError(
                    f"{self.project}: {name} was not removed: {why}",
                    f"see `kubectl describe {name.lower()}`, then run `lab down {self.project}`",
                )
            for resource in left:
                if resource["metadata"]["uid"] not in deleted:
                    self.api.delete(resource)
                    deleted.add(resource["metadata"]["uid"])
            time.sleep(POLL_S)


def _detail(pod: Object | None) -> str:
    return "it has no pod" if pod is None else status.detail(pod)
