"""The labels of this backend's containers, and the engine's data about a container."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.base.image_digest import LABEL
from lab.base.text import short
from lab.base.variables import LAB_CLUSTER
from lab.protocol.volume.layout import TASK as TASK_NAME
from lab.protocol.volume.layout import task_names

PROJECT: Final = "lab.project"
NODE: Final = "lab.node"
TASK: Final = "lab.task"
GPUS: Final = "lab.gpus"
CLUSTER_SHA256: Final = "lab.cluster-sha256"
RUNTIME: Final = "lab.runtime"

COMPOSE_PROJECT: Final = "com.docker.compose.project"
COMPOSE_SERVICE: Final = "com.docker.compose.service"
COMPOSE_FOLDER: Final = "com.docker.compose.project.working_dir"
COMPOSE_FILE: Final = "com.docker.compose.project.config_files"

TRANSIENT: Final = "lab.reader"
"""Label of a short-lived container that is not part of the environment: it reads the volume of a
stopped environment, starts a run or injects a network fault."""

FAULT: Final = "lab.fault"
"""Label of a transient container that injects a network fault; its value is the node."""

RUNS_MOUNT: Final = "/runs"
SCRIPTS_MOUNT: Final = "/lab/scripts"

_GPU_NODE: Final = re.compile(r"/dev/nvidia[0-9]+")


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """The engine's data about one container.

    Attributes:
        id: The container's id.
        name: Its name, `mnist-worker-0-1`.
        service: Its compose service, `worker-0` or `tf2`.
        task: Its task; "" for an anchor, and if the label is not a task of its cluster spec.
        node: Its node, or "".
        state: The engine's state: `created`, `running`, `exited`.
        health: `healthy`, `starting`, `unhealthy`, or "" without a health check.
        fault: The message of the newest health check if it is unhealthy, or "".
        exit_code: Its last exit code.
        error: The engine's reason why it did not start, or "".
        started: Its start time in UTC with all nine decimals, so that it sorts as text.
        gpus: Device ids that the engine gives it; `all` or `2 of any` if the request has no ids;
            None if Podman gives it some, which it does not name.
        planned: Device ids of its planned GPUs.
        variables: Its environment variables.
        cluster_sha256: Digest of its config.
        runtime: The runtime of its image, a key of `lab.protocol.runtimes.RUNTIMES`.
        image: The id of its image.
        sources_sha256: Digest of lab's code in its image, or "".
        file: Its compose file, as compose names it.
        root: Its project's directory: with the programs that a task mounts; of an anchor, the
            directory of relative paths in `file`.
        volume: The name of the volume at `/runs`, or "".
    """

    id: str
    name: str
    service: str
    task: str
    node: str
    state: str
    health: str
    fault: str
    exit_code: int
    error: str
    started: str
    gpus: tuple[str, ...] | None
    planned: tuple[str, ...]
    variables: Mapping[str, str]
    cluster_sha256: str
    runtime: str
    image: str
    sources_sha256: str
    file: str
    root: str
    volume: str

    @property
    def running(self) -> bool:
        """Whether its processes run."""
        return self.state == "running"

    @property
    def up(self) -> bool:
        """Whether it runs and is healthy; without a health check, whether it runs."""
        return self.running and self.health in {"", "healthy"}

    @property
    def detail(self) -> str:
        """Its state as text: `running (healthy)`, `running (unhealthy: …)`, `exited (1)`."""
        if self.running:
            health = f"{self.health}: {self.fault}" if self.fault else self.health
            return f"running ({health})" if health else "running"
        return f"exited ({self.exit_code})" if self.state == "exited" else self.state

    def cluster_spec(self) -> dict[str, list[str]]:
        """TensorFlow's cluster spec from this container's variables; empty if it has none."""
        return _spec(self.variables)


def parse_inspection(attributes: Mapping[str, Any]) -> ContainerInfo:
    """Parse the engine's inspection of a container. Its labels and variables are untrusted."""
    config, state, host = attributes["Config"], attributes["State"], attributes["HostConfig"]
    labels: Mapping[str, str] = config.get("Labels") or {}
    pairs = (entry.partition("=") for entry in config.get("Env") or [])
    variables = {name: value for name, _, value in pairs}
    task = labels.get(TASK, "")
    fits = not task or task in task_names(_spec(variables))
    health = state.get("Health") or {}
    mounts = [mount for mount in attributes.get("Mounts") or [] if mount["Type"] == "volume"]
    volumes = {mount["Destination"]: mount["Name"] for mount in mounts}
    # As compose requested it: `Mounts` has the path inside the virtual machine of Docker Desktop.
    binds = {mount["Target"]: mount["Source"] for mount in host.get("Mounts") or []}
    scripts, folder = binds.get(SCRIPTS_MOUNT), labels.get(COMPOSE_FOLDER, "")
    return ContainerInfo(
        id=attributes["Id"],
        name=attributes["Name"].lstrip("/"),
        service=labels.get(COMPOSE_SERVICE, ""),
        task=task if fits else "",
        node=labels.get(NODE, "") if fits else "",
        state=state["Status"],
        health=health.get("Status", ""),
        fault=_fault(health),
        exit_code=state["ExitCode"],
        error=state.get("Error", ""),
        started=_sortable(state["StartedAt"]),
        gpus=_granted_gpus(host),
        planned=tuple(filter(None, labels.get(GPUS, "").split(","))),
        variables=variables,
        cluster_sha256=labels.get(CLUSTER_SHA256, ""),
        runtime=labels.get(RUNTIME, ""),
        image=attributes["Image"],
        sources_sha256=labels.get(LABEL, ""),
        file=labels.get(COMPOSE_FILE, ""),
        root=str(Path(scripts).parent) if scripts else folder,
        volume=volumes.get(RUNS_MOUNT, ""),
    )


def _spec(variables: Mapping[str, str]) -> dict[str, list[str]]:
    """The cluster spec in a container's variables; empty if it is missing or invalid."""
    try:
        spec = json.loads(variables.get(LAB_CLUSTER) or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(spec, dict) or not all(
        isinstance(hosts, list) and all(isinstance(host, str) for host in hosts)
        for hosts in spec.values()
    ):
        return {}
    return spec if all(map(TASK_NAME.fullmatch, task_names(spec))) else {}


def _granted_gpus(host: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The GPUs of its device requests; the engine writes a count of -1 for all GPUs.

    Podman reports only the device nodes; None means that it grants some GPUs.
    """
    if (host.get("Annotations") or {}).get("io.container.manager") == "libpod":
        nodes = [str(device.get("PathInContainer")) for device in host.get("Devices") or ()]
        return None if any(map(_GPU_NODE.fullmatch, nodes)) else ()
    gpus: list[str] = []
    for request in host.get("DeviceRequests") or ():
        count = request.get("Count") or 0
        # CDI writes a GPU with its kind: `nvidia.com/gpu=GPU-…`.
        gpus += [gpu.rpartition("=")[2] for gpu in request.get("DeviceIDs") or ()]
        gpus += ["all" if count < 0 else f"{count} of any"] if count else []
    return tuple(gpus)


def _fault(health: Mapping[str, Any]) -> str:
    """The last line of the newest health check of an unhealthy container, or ""."""
    probes = health.get("Log") or []
    if health.get("Status") != "unhealthy" or not probes:
        return ""
    lines = str(probes[-1].get("Output", "")).strip().splitlines()
    return short(lines[-1]) if lines else ""


def _sortable(time: str) -> str:
    """Add the trailing zeros of the fraction, which the engine leaves out."""
    seconds, _, fraction = time.removesuffix("Z").partition(".")
    return f"{seconds}.{fraction:0<9}"
