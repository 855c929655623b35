"""An environment of containers, for `lab ps`, `run`, `collect`, `logs` and `down`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from lab.backends import gpu_verification
from lab.backends.compose import cli
from lab.backends.compose.cleanup import remove, stop, was_started
from lab.backends.compose.host_block import block_host
from lab.backends.compose.volume import ComposeVolume, stdout_of
from lab.backends.engine.client import Engine, engine_errors
from lab.backends.engine.containers import (
    FAULT,
    PROJECT,
    TRANSIENT,
    ContainerInfo,
    parse_inspection,
)
from lab.backends.environment import Environment, TaskInfo
from lab.backends.gpu_record import release
from lab.backends.log_tail import merged_lines
from lab.backends.names import COMPOSE
from lab.backends.network_faults import wait_until_in_effect
from lab.base.errors import LabError
from lab.base.variables import LAB_LINK
from lab.cluster.gpu.verification import GpuView
from lab.protocol.network import fault

if TYPE_CHECKING:
    from lab.backends.compose.volume import Output


class ComposeEnvironment(Environment):
    """The containers, networks and volumes that carry the label of one project.

    Attributes:
        backend: `compose`.
        project: The project's name.
        folder: Its project's directory; "" if only a volume is left.
        cluster_sha256: Digest of its config; "" if only a volume is left.
        runtime: The runtime of its tasks; "" if only a volume is left.
        containers: Its containers when this object was made. Their state may have changed since.
    """

    backend = COMPOSE

    def __init__(self, engine: Engine, project: str) -> None:
        self._engine = engine
        self.project = project
        self.run_volume = ComposeVolume(engine, project, self.inspect)
        self.containers = self.inspect()
        task = next((info for info in self.containers if info.task), None)
        self.folder = task.root if task else ""
        self.cluster_sha256 = task.cluster_sha256 if task else ""
        self.runtime = task.runtime if task else ""

    @property
    def is_up(self) -> bool:
        """Whether any of its containers was running when this object was made."""
        return any(info.running for info in self.containers)

    @property
    def is_local(self) -> bool:
        """Whether the engine runs on this host, by the host name that the engine reports."""
        return self._engine.is_local()

    @property
    def sources_sha256(self) -> str:
        """Digest of lab's code in its containers; "" if the containers differ."""
        by_image = {info.image: info for info in self.containers}
        digests = {info.sources_sha256 or self._digest_in(info) for info in by_image.values()}
        return digests.pop() if len(digests) == 1 else ""

    def _digest_in(self, container: ContainerInfo) -> str:
        """The digest in a container whose image `docker compose build` made, without a label."""
        if not container.running:
            return ""
        command = ["python", "-m", "lab.base.image_digest"]
        doing = f"reading the version of lab in {container.service}"
        done = self._engine.execute(doing, container.id, command, within_s=30, max_bytes=1 << 16)
        return done.stdout.decode(errors="replace").strip()

    def inspect(self) -> list[ContainerInfo]:
        """Inspect its containers: first the anchors, then the tasks in the plan's order."""
        containers = [parse_inspection(attributes) for attributes in self._inspected()]
        spec = next((container.cluster_spec() for container in containers if container.task), {})
        order = [f"{job}-{i}" for job, hosts in spec.items() for i in range(len(hosts))]
        positions = {task: position for position, task in enumerate(order, start=1)}
        return sorted(containers, key=lambda info: (positions.get(info.task, 0), info.service))

    def _task_containers(self) -> dict[str, ContainerInfo]:
        return {info.task: info for info in self.inspect() if info.task}

    def cluster_spec(self) -> dict[str, list[str]]:
        """TensorFlow's cluster spec; empty if only a volume is left."""
        return next((info.cluster_spec() for info in self.containers if info.task), {})

    def tasks(self) -> list[TaskInfo]:
        """All tasks, in the plan's order."""
        return list(map(_task, self._task_containers().values()))

    def block_host(self) -> None:
        """Block this host from its tasks; see `Environment`."""
        block_host(self._engine, self.project)

    def inject_network_fault(self, node: str, arguments: Sequence[str]) -> None:
        """Inject a fault into a node's network; see `Environment`.

        A short-lived container shares only the network of the node's anchor. Its only capability is
        NET_ADMIN. It reverts its changes itself, and the engine removes it when it ends.

        Raises:
            LabError: The node does not run, the engine refused the container, or the fault is not
                in effect in time.
        """
        anchors = (info for info in self.inspect() if not info.task and info.node == node)
        anchor = next(anchors, None)
        if anchor is None or not anchor.running:
            detail = anchor.detail if anchor else "there is no such node"
            raise LabError(f"node {node} is not running: {detail}", f"see `lab ps {self.project}`")
        link = {name: value for name, value in anchor.variables.items() if name == LAB_LINK}
        doing = f"injecting a fault into node {node}"
        with engine_errors(doing):
            container = self._engine.create(
                self.project,
                anchor.image,
                ["python", "-m", fault.MODULE, *arguments],
                labels={FAULT: node},
                environment=link,
                network_mode=f"container:{anchor.id}",
                user="0:0",
                cap_add=["NET_ADMIN"],
                auto_remove=True,
            )
        try:
            with engine_errors(doing):
                output: Output = container.attach(stream=True, logs=True, demux=True)
                container.start()
            wait_until_in_effect(node, lambda: _began(output, doing))
        except BaseException:
            with suppress(LabError), engine_errors(doing):
                # Stop it before the removal: a killed container does not revert its changes.
                container.stop(timeout=_STOP_S)
                # The engine removes only containers that were started.
                container.remove(force=True)
            raise

    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        """Lines of the tasks' standard output, `worker-0  | …`; all tasks if none is named.

        Raises:
            InputError: There is no such task.
        """
        named = self.selected(self._task_containers(), tasks)
        if not named:
            raise LabError(f"environment {self.project} has no containers", "boot it with `lab up`")
        last: Literal["all"] | int = "all" if tail is None else tail

        def pieces(info: ContainerInfo) -> Iterator[bytes]:
            with engine_errors(f"reading the output of {info.service}"):
                container = self._engine.client().containers.get(info.id)
                yield from container.logs(stream=True, follow=follow, tail=last, since=since)

        return merged_lines({task: pieces(info) for task, info in named.items()})

    def shell(self, task: str) -> list[str]:
        """The command line that opens a shell in the task's container.

        Raises:
            InputError: There is no such task.
            LabError: The container does not run.
        """
        info = self.known_task(self._task_containers(), task)
        if not info.running:
            raise LabError(f"{task} is not running: {info.detail}", "boot it with `lab up`")
        return [cli.docker(), "exec", "--interactive", "--tty", info.name, "bash"]

    def probe_gpus(self) -> dict[str, GpuView]:
        """The GPUs that each task and each node sees now; see `Environment`."""
        return gpu_verification.probe_all(
            {
                info.task or info.service: partial(probe_container, self._engine, info)
                for info in self.inspect()
            }
        )

    def provenance(self) -> dict[str, str]:
        """The image's digest, and the versions of TensorFlow, engine, kernel and compose."""
        image = next((info.image for info in self.containers), "")
        with engine_errors("reading the engine's version"):
            client = self._engine.client()
            reported: dict[str, Any] = client.version()
            cpus = str(client.info().get("NCPU", 0))
        return {
            "image": image,
            "runtime": self.runtime,
            "engine": str(reported["Version"]),
            "kernel": str(reported.get("KernelVersion", "")),
            "compose": cli.compose_version(),
            "cpus": cpus,
        }

    def boot_file(self) -> tuple[str, str]:
        """The compose file that it was booted from, or the containers as JSON without it."""
        text = cli.compose_file(self.containers)
        if text is not None:
            return "docker-compose.yml", text
        return "containers.json", json.dumps(self._containers(), indent=2, sort_keys=True) + "\n"

    def end(self, *, keep_volume: bool = False) -> None:
        """Remove every container, network and volume with the project's label; see `Environment`.

        Raises:
            LabError: The engine refused.
        """
        end_faults(self._engine, self.project)
        remove(self._engine, self.project, keep_volumes=keep_volume)
        if any(info.planned for info in self.containers):
            release(self.backend, self.project, self._engine.id())
        cli.remove_compose_file(self.project)

    def _containers(self) -> list[dict[str, Any]]:
        """The engine's data about each container, without its changing state."""
        keys = ("Name", "Image", "Path", "Args", "Config", "HostConfig", "Mounts")
        return sorted(
            ({key: container[key] for key in keys} for container in self._inspected()),
            key=lambda container: str(container["Name"]),
        )

    def _inspected(self) -> list[dict[str, Any]]:
        """The engine's inspection of each container, without transient containers."""
        containers = self._engine.containers(f"{PROJECT}={self.project}")
        return [container.attrs for container in containers if TRANSIENT not in container.labels]


def _task(info: ContainerInfo) -> TaskInfo:
    """Convert a task's container to a `TaskInfo`."""
    job, _, index = info.task.rpartition("-")
    return TaskInfo(
        task=info.task,
        node=info.node,
        address=info.cluster_spec()[job][int(index)],
        gpus=info.planned,
        alive=info.up,
        detail=info.detail,
    )


def probe_container(engine: Engine, info: ContainerInfo) -> GpuView:
    """Probe the GPUs that a container sees."""
    if not info.running:
        return GpuView(why=info.detail)
    try:
        # No user: the probe must run as the user of PID 1 to read its variables.
        done = engine.execute(
            f"probing the GPUs of {info.service}",
            info.id,
            ["python", *gpu_verification.COMMAND],
            within_s=gpu_verification.LIMIT_S,
            max_bytes=gpu_verification.MAX_BYTES,
        )
    except LabError as error:
        return GpuView(why=str(error))
    return gpu_verification.parse_output(*done)


_STOP_S: Final = 5
_GONE_WITHIN_S: Final = 10.0
_POLL_S: Final = 0.1


def end_faults(engine: Engine, project: str) -> None:
    """End all network faults of a project now, and wait until their containers are removed.

    Containers that were never started stay. They are removed with the rest of the project.

    Raises:
        LabError: The engine does not answer.
    """
    labels = (FAULT, f"{PROJECT}={project}")
    engine.for_each("ending a fault", engine.containers(*labels), stop)
    until = time.monotonic() + _GONE_WITHIN_S
    while any(map(was_started, engine.containers(*labels))) and time.monotonic() < until:
        time.sleep(_POLL_S)


def _began(output: Output, doing: str) -> bytes | None:
    """Wait. Return None when the fault is in effect, or standard error if the container ends."""
    pieces = stdout_of(output, doing)
    try:
        next(pieces)
    except StopIteration as end:
        return bytes(end.value)
    pieces.close()
    return None
