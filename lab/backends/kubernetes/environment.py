"""An environment on Kubernetes: pods, and a run volume that a small pod of its own reads."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from threading import Event
from typing import Any, Final

from lab.backends import environment_dir
from lab.backends.directory import Recorded
from lab.backends.engine.client import NotFound
from lab.backends.environment import TaskInfo, Wanted
from lab.backends.environment_dir import EnvironmentDir, Record
from lab.backends.kubernetes import status
from lab.backends.kubernetes.api import Api, ApiError, Away, CallError
from lab.backends.kubernetes.pods import OWNER, PROJECT, SCRIPTS, Object, base_name, directory_of
from lab.backends.kubernetes.render import QUEUE
from lab.backends.log_tail import merged_lines
from lab.backends.names import KUBERNETES
from lab.backends.volume_calls import (
    MODULE,
    CalledEnvironment,
    Channel,
    archive_of,
    raise_for_exit_code,
)
from lab.errors import LabError
from lab.log import LOG
from lab.text import short, visible
from lab.threads import in_background
from lab.volume import Chunk
from lab.volume.clock import stamp

_POLL_S: Final = 1.0
_LOOK_S: Final = 3.0
"""Seconds between two looks at the pods while a run is followed."""

_AWAY_S: Final = 120.0
"""Seconds for which a client that follows a run waits for the API server."""

_END_S: Final = 120.0
"""Seconds that all pods have to end."""


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
    """The state directory of one environment; the run volume is on the cluster.

    Attributes:
        file: The rendered objects.
    """

    backend = KUBERNETES
    record_type = EnvironmentRecord
    hint = "remove what `kubectl get all,pvc,netpol -l lab.project` lists"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.file = directory / "cluster.k8s.yaml"


START_S: Final = 180.0
"""Seconds that a pod with a node has to start: it may pull its image."""

PROBLEMS: Final = "see docs/how-to/kubernetes.md, Problems"
CLAIM: Final = "PersistentVolumeClaim"

_POD_POLL_S: Final = 0.5


def call_in_pod(api: Api, pod: str, *arguments: str) -> Generator[bytes, None, None]:
    """Call the volume's module in a pod; see `Channel`."""
    leash = ["--leash"] if "--follow" in arguments else []
    try:
        yield from api.call(pod, [*MODULE, *arguments, *leash])
    except CallError as error:
        doing = f"calling {arguments[0]} on the run volume"
        raise_for_exit_code(doing, error.code, error.what.encode())


class VolumePod:
    """The pod in which the client reads and writes the run volume, which is started on demand."""

    def __init__(self, api: Api, record: EnvironmentRecord, labels: Mapping[str, str]) -> None:
        self._api, self._record, self._labels = api, record, labels

    def name(self) -> str:
        """Start the pod unless it runs, and return its name.

        Raises:
            NotFound: The volume claim is gone.
            LabError: The pod does not start.
        """
        name, until = str(self._record.reader["metadata"]["name"]), time.monotonic() + START_S
        while True:
            pods = self._api.list("Pod", self._labels)
            pod = next((pod for pod in pods if pod["metadata"]["name"] == name), None)
            if pod is None:
                self._start()
            elif status.is_ready(pod):
                return name
            elif status.was_ended(pod) and time.monotonic() < until:
                self._api.delete(pod)
            elif status.failure(pod) or time.monotonic() > until:
                why = f"{status.detail(pod)}{last_lines(self._api, pod)}"
                raise LabError(f"the pod of the run volume, {name}: {why}", self._hint(pod))
            time.sleep(_POD_POLL_S)

    def _hint(self, pod: Object) -> str:
        is_shared = self._record.own_claim and "affinity" not in self._record.reader["spec"]
        if is_shared and status.is_waiting(pod):
            return "if only one node can mount the volumes here (ReadWriteOnce), use -o nodes=one"
        return PROBLEMS

    def _start(self) -> None:
        if self._record.own_claim and not self._api.list(CLAIM, self._labels):
            raise NotFound(
                f"environment {self._record.project} no longer exists", "boot it with `lab up`"
            )
        try:
            self._api.create(self._record.reader)
        except ApiError as error:
            name = ("fieldSelector", f"metadata.name={self._record.reader['metadata']['name']}")
            pods = self._api.list("Pod", {}, [name]) if error.is_conflict else []
            owners = [pod["metadata"].get("labels", {}).get(OWNER) for pod in pods]
            if not error.is_conflict or any(owner != self._record.owner for owner in owners):
                raise
            # another command has started it

    def call(self, command: Sequence[str], stdin: bytes = b"") -> Iterator[bytes]:
        """Yield what a command in the pod prints.

        Raises:
            LabError: The pod does not start, or the command fails.
        """
        return self._api.call(self.name(), command, stdin)

    def upload(self, folder: Path, inside: PurePosixPath) -> None:
        """Copy a directory to the run volume, if there is one.

        Raises:
            LabError: The volume refuses it.
        """
        if not folder.is_dir():
            return
        archive = archive_of(folder, inside)
        # The standard input of a call has no end.
        unpack = 'head -c "$1" | tar -x -f - -C "$2"'
        command = ["sh", "-c", unpack, "sh", str(len(archive)), self._directory]
        for _ in self.call(command, archive):
            pass

    def remove_directory(self) -> None:
        """Remove the directory that lab has made on the user's claim."""
        command = ["rm", "-r", "-f", "--", self._directory]
        try:
            for _ in self.call(command):
                pass
        except LabError as error:  # no pod can be started, so that it may not exist at all
            LOG.warning(f"{self._directory} may be left on the volume claim: {error.what}")

    @property
    def _directory(self) -> str:
        return directory_of(self._record.project, self._record.owner)


def last_lines(api: Api, pod: Object) -> str:
    """The last lines that a pod has printed, for an error; "" if it has not started."""
    try:
        name = pod["metadata"]["name"]
        data = b"".join(api.logs(name, follow=False, tail=3, since=None))
    except LabError:
        return ""
    lines = " / ".join(visible(line.strip()) for line in data.splitlines() if line.strip())
    return f"; its last lines: {short(lines, 300)}" if lines else ""


class KubernetesEnvironment(Recorded[EnvironmentRecord], CalledEnvironment):
    """The objects with the labels of one environment, and its run volume.

    Kubernetes gives each pod GPUs of its own, by their number. The network policy closes the pods'
    network.
    """

    backend = KUBERNETES
    is_local = False
    _state_dir: StateDir

    def __init__(self, state_dir: StateDir, record: EnvironmentRecord) -> None:
        super().__init__(state_dir, record)
        self._labels = {PROJECT: record.project, OWNER: record.owner}

    @cached_property
    def api(self) -> Api:
        """The namespace of the environment."""
        return Api(self._record.context, self._record.namespace)

    @cached_property
    def _volume_pod(self) -> VolumePod:
        return VolumePod(self.api, self._record, self._labels)

    @property
    def is_up(self) -> bool:
        """Whether a pod of a task runs."""
        return any(map(status.is_running, self._pods().values()))

    def _pods(self) -> dict[str, Object]:
        """The newest pod of each task."""
        pods = sorted(
            self.api.list("Pod", self._labels), key=lambda pod: pod["metadata"]["creationTimestamp"]
        )
        return {task: pod for pod in pods if (task := status.task_of(pod))}

    def tasks(self) -> list[TaskInfo]:
        """All tasks, in the plan's order."""
        pods = self._pods()
        return [
            TaskInfo(
                task=record.task,
                node=record.node,
                address=record.address,
                gpus=tuple(map(str, range(record.gpus))),
                alive=record.task in pods and status.is_ready(pods[record.task]),
                detail=status.detail(pods[record.task]) if record.task in pods else "it has no pod",
            )
            for record in self._record.tasks
        ]

    # ---- the boot

    def create(self, objects: Sequence[Object]) -> None:
        """Create objects, except a volume claim that is kept from before.

        Raises:
            LabError: The server refuses one.
        """
        claims = {claim["metadata"]["name"] for claim in self.api.list(CLAIM, self._labels)}
        for manifest in objects:
            if manifest["kind"] != CLAIM or manifest["metadata"]["name"] not in claims:
                self.api.create(manifest)

    def wait(self) -> None:
        """Wait until all agents run; report why pods wait.

        Raises:
            LabError: A pod will never run, or does not start its agent in time.
        """
        shown, began = "", time.monotonic()
        while True:
            pods = self._pods()
            waiting = [record.task for record in self._record.tasks if record.task not in pods]
            waiting += [task for task, pod in pods.items() if not status.is_ready(pod)]
            if not waiting:
                return
            task = waiting[0]
            line = f"{task}: {status.detail(pods[task]) if task in pods else self._absence()}"
            for name, pod in pods.items():
                if (reason := status.failure(pod)) is not None:
                    raise LabError(f"{name}: {reason}{last_lines(self.api, pod)}", PROBLEMS)
            if task not in pods:
                self._raise_for_missing(task)
            if any(name not in pods or status.is_waiting(pods[name]) for name in waiting):
                began = time.monotonic()  # a queue has no limit
            if time.monotonic() - began > START_S:
                raise LabError(f"{line}: its agent did not start", f"see `lab logs {task}`")
            if line != shown:
                LOG.info(line)
                shown = line
            time.sleep(_POLL_S)

    def _absence(self) -> str:
        """Why a task has no pod yet."""
        for jobset in self.api.list("JobSet", self._labels):
            if jobset["spec"].get("suspend") and QUEUE in jobset["metadata"]["labels"]:
                return f"it waits in the queue {jobset['metadata']['labels'][QUEUE]} of Kueue"
        return "it has no pod yet"

    def _raise_for_missing(self, task: str) -> None:
        """Raise the error if Kubernetes refuses to create a pod: by a quota, for example."""
        reader = self._record.reader["metadata"]["name"]
        pods = [pod["metadata"] for pod in self.api.list("Pod", self._labels)]
        starts = [pod["creationTimestamp"] for pod in pods if pod["name"] == reader]
        try:
            events = self.api.list("Event", {}, [("fieldSelector", "reason=FailedCreate")])
        except ApiError:
            return  # not every user may read them
        for event in events:
            is_own = f"{event['involvedObject']['name']}-".startswith(f"{base_name(self.project)}-")
            at = event["metadata"]["creationTimestamp"]
            if is_own and any(start <= at for start in starts):  # not of an earlier environment
                raise LabError(f"{task} has no pod: {event['message']}", PROBLEMS)

    def image_digest(self) -> str:
        """Return the digest of lab's code in the image.

        Raises:
            LabError: The pod of the run volume does not start.
        """
        command = ["python", "-m", "lab.image_digest"]
        return b"".join(self._volume_pod.call(command)).decode().strip()

    # ---- the run volume

    def channel(self) -> Channel:
        """Return a channel by the pod of the run volume, which is started if it does not run."""
        return partial(call_in_pod, self.api, self._volume_pod.name())

    def upload(self, run_id: str, parts: Mapping[str, Path]) -> None:
        """Copy the project's programs, and the parts of a run; see `CalledEnvironment`."""
        self._volume_pod.upload(Path(self.folder, SCRIPTS), PurePosixPath(SCRIPTS))
        for name, folder in parts.items():
            self._volume_pod.upload(folder, PurePosixPath("incoming", run_id, name))

    def clock_offset_s(self) -> float:
        """Seconds by which the run volume's clock is ahead of this host's; see `Environment`.

        It is 0 if the difference is smaller than the duration of the call.
        """
        began = time.time()
        now = float(self.call("time"))
        return max(0.0, now - time.time()) + min(0.0, now - began)

    def chunks(self, wanted: Wanted) -> Iterator[Chunk | None]:
        """Stream files of a run; see `Environment`. Wait for an API server that is away."""
        collected, until = dict(wanted.offsets), 0.0
        while True:
            try:
                left = replace(wanted, offsets=collected)
                for chunk in self._checked(super().chunks(left)):
                    until = 0.0
                    if chunk is not None and not chunk.fault:
                        collected[chunk.path] = (chunk.offset or 0) + len(chunk.data)
                    yield chunk
            except Away as error:
                if not wanted.follow or (until and time.monotonic() > until):
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
        looked, reported = time.monotonic(), set[str]()
        with self._watched() as causes:
            try:
                for chunk in chunks:
                    yield chunk
                    if chunk is None and time.monotonic() - looked > _LOOK_S:
                        self._check_up(reported, causes)
                        looked = time.monotonic()
            finally:  # an agent may have recorded its end before the next check
                for task in sorted(causes.keys() - reported):
                    LOG.warning(f"{task}: {causes[task]}")

    @contextmanager
    def _watched(self) -> Iterator[dict[str, str]]:
        """Watch the pods in a thread; yield why Kubernetes ends them, by their tasks.

        A deleted pod shows the cause only until it is gone, a second later. The agent of an evicted
        one may have recorded its end, and with it that of the run, before the next check.
        """
        causes: dict[str, str] = {}
        closed = Event()

        def watch() -> None:
            while not closed.is_set():
                with suppress(LabError):  # without an answer, or without this right
                    for pod in self.api.watch_pods(self._labels):
                        if closed.is_set():
                            return
                        task = status.task_of(pod)
                        if task and task not in causes and status.is_ended_by_kubernetes(pod):
                            causes[task] = status.detail(pod)
                            causes[task] += self._drain_of(pod)
                closed.wait(_LOOK_S)

        in_background(watch)
        try:
            yield causes
        finally:
            closed.set()

    def _drain_of(self, pod: Object) -> str:
        """Whether a pod's node is drained, for a message; not every user may read nodes."""
        node = pod["spec"].get("nodeName")
        with suppress(LabError):
            if node and self.api.node(node)["spec"].get("unschedulable"):
                return ": its node is closed to new pods, as `kubectl drain` does"
        return ""

    def _check_up(self, reported: set[str], causes: Mapping[str, str]) -> None:
        """Report the tasks whose agents have ended, and check that one runs.

        Args:
            reported: The tasks that are reported already; it changes.
            causes: Why Kubernetes has ended pods, by their tasks.

        Raises:
            LabError: No agent runs; the message has the cause that Kubernetes names.
        """
        pods = self._pods()
        ended = [info for info in self.tasks() if not status.is_running(pods.get(info.task))]
        details = {info.task: causes.get(info.task, info.detail) for info in ended}
        if len(ended) == len(self._record.tasks):
            first = ended[0].task
            raise LabError(
                f"the kubernetes environment {self.project!r} has stopped:"
                f" {first}: {details[first]}",
                "its runs stay on its run volume until `lab down`",
            )
        for task, why in details.items():
            if task not in reported:
                LOG.warning(f"{task}: {why}")
        reported.update(info.task for info in ended)

    # ---- its tasks

    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        """Lines of the agents' standard output, `worker-0  | …`; see `Environment`.

        Raises:
            InputError: There is no such task.
        """
        names = {record.task: record.task for record in self._record.tasks}
        selected = [self.known_task(names, task) for task in tasks] or [*names]
        pods = self._pods()
        outputs = {
            task: self.api.logs(
                pods[task]["metadata"]["name"],
                follow=follow,
                tail=tail,
                since=None if since is None else stamp(since),
            )
            for task in selected
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
        pod = self._pods().get(task)
        if pod is None or not status.is_running(pod):
            why = "it has no pod" if pod is None else status.detail(pod)
            raise LabError(f"{task} is not running: {why}", "boot it with `lab up`")
        context = ["--context", self.api.context] if self.api.context else []
        name = str(pod["metadata"]["name"])
        place = ["--namespace", self.api.namespace, "exec", "--stdin", "--tty", name]
        return ["kubectl", *context, *place, "--", "bash"]

    def provenance(self) -> dict[str, str]:
        """What really ran: the image with its digest, the version of Kubernetes, the nodes."""
        pods = self._pods().values()
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
            self._remove(self._record.kinds, keep=str(self._record.reader["metadata"]["name"]))
            self._volume_pod.remove_directory()
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
            resources = [each for kind in kinds for each in self.api.list(kind, self._labels)]
            left = [resource for resource in resources if resource["metadata"]["name"] != keep]
            if not left:
                return
            if time.monotonic() > until:
                name = f"{left[0]['kind']} {left[0]['metadata']['name']}"
                why = status.detail(left[0]) if left[0]["kind"] == "Pod" else "it is not removed"
                raise LabError(
                    f"{self.project}: {name} is left: {why}",
                    f"see `kubectl describe {name.lower()}`, then run `lab down {self.project}`",
                )
            for resource in left:
                if resource["metadata"]["uid"] not in deleted:
                    self.api.delete(resource)
                    deleted.add(resource["metadata"]["uid"])
            time.sleep(_POD_POLL_S)
