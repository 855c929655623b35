"""Renders a plan as a compose file: the same plan always gives the same bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from lab.backends import rendered_file
from lab.backends.names import COMPOSE, capabilities
from lab.backends.options import Values, defaults_of
from lab.backends.rendered_file import PLAIN, Rendering
from lab.backends.yaml_text import Block, Value, Variable, compose_yaml
from lab.base import variables as var
from lab.base.text import short
from lab.base.units import MIB
from lab.cluster.config.validation import RUN_SERVICE
from lab.cluster.placement.plan import Plan, PlannedNode, PlannedRun, PlannedTask
from lab.protocol.network.link import MTU, link_environ
from lab.protocol.runtimes import GPU_ORDER, NO_GPU, RUNTIMES, TENSORFLOW

DEFAULTS: Final[Values] = defaults_of(capabilities(COMPOSE).options)

BASE_IMAGE: Final = "python:3.11-slim-bookworm"

CDI_KIND: Final = "nvidia.com/gpu"
"""The kind of GPUs in CDI; a device's full name is `nvidia.com/gpu=GPU-…`."""

ISOLATED: Final = (
    "com.docker.network.bridge.gateway_mode_ipv4",
    "com.docker.network.bridge.gateway_mode_ipv6",
)
"""The driver options with which the host has no address on a network."""

_RUNS: Final[Mapping[str, Value]] = {"type": "volume", "source": "runs", "target": "/runs"}

_COMMENTS: Final = {
    "x-service": "Common to all containers: one image, and as few rights as possible.",
    "x-anchor": """\
A node: owns the hostname, the address and the shared memory; runs no program.
A health check watches for two minutes; `interval` is only the pause between two checks.""",
    "x-link": "A node with a link changes its own network, for which it needs these rights.",
    "x-task": "A task: joins the network and the shared memory of its node.",
    "x-environment": "Environment variables of every task.",
    "x-no-gpu": "Hides all GPUs, also in a CUDA image.",
    "x-gpu": "Numbers its GPUs as nvidia-smi does.",
    "x-labels": "`lab` finds its containers by these labels, from any directory.",
    "services": "First the nodes, then the tasks. The first service builds the image for all.",
    "networks": """\
Internal: TensorFlow's servers execute any request that they receive.
The MTU is that of a loopback, as all nodes are here; a node with a link sets a smaller one.""",
    "volumes": "The run volume: records, logs and models.",
}


@dataclass(frozen=True, slots=True)
class Home:
    """An existing volume with the run volume and the programs of an environment.

    Attributes:
        volume: Its name.
        target: Where the tasks mount it.
        variables: The variables of the tasks that name directories in it.
        logging: The limit of each container's log, as compose writes it.
    """

    volume: str
    target: str
    variables: Mapping[str, str]
    logging: Mapping[str, Value]


def image_of(plan: Plan) -> str:
    """Return the image of a plan's containers, unless `LAB_IMAGE` names another."""
    return RUNTIMES[plan.runtime].image(gpus=plan.has_gpus)


_IDLE: Final = "boots the cluster; every task waits for a run"
_REACHES_HOST: Final = (
    "`docker compose up` lets tasks reach services of this host that listen on all addresses.",
    "`lab up` and `lab run` block them. On Engine 28 or later, so does",
    "`python -m lab render -o network=isolated`.",
)
_HIDES_HOST: Final = (
    "On Engine 28 or later, the host has no address on the cluster's network. Earlier engines",
    "ignore this: there, only `lab up` and `lab run` block the services of this host.",
)


def header(plan: Plan, options: Values, rendering: Rendering) -> str:
    """Return the comment at the top of the file."""
    usage, run = [f"docker compose up            {_IDLE}"], rendering.run
    if run is not None:
        usage = [
            "docker compose up            boots the cluster, trains"
            f" {short(run.command)}, waits for more runs",
            f"LAB_RUN= docker compose up   {_IDLE}",
            f"LAB_ONCE=1 docker compose up --exit-code-from {RUN_SERVICE}",
            "                             trains once and ends",
        ]
    note = _HIDES_HOST if options["network"] == "isolated" else _REACHES_HOST
    return rendered_file.header(plan, COMPOSE, options, rendering, *usage, "", *note)


def render(
    plan: Plan,
    options: Values = DEFAULTS,
    rendering: Rendering = PLAIN,
    home: Home | None = None,
) -> str:
    """Render a plan as a compose file.

    Args:
        plan: The plan, with the final mode and TensorFlow version.
        options: The options. A class adds `subnet`, the addresses of the network.
        rendering: The run, and the paths of the config and of the project.
        home: The volume that replaces the run volume.

    Returns:
        The text of the file.
    """
    blocks = _SharedBlocks(plan, options, rendering.folder, home)
    volumes: dict[str, Value] = {"runs": {"labels": {"lab.project": plan.name}}}
    if home is not None:
        volumes = {"home": {"name": home.volume, "external": True}}
    label: dict[str, Value] = {"lab.project": plan.name}
    document: dict[str, Value] = {
        "name": plan.name,
        **{f"x-{block.name}": block for block in blocks.used(plan)},
        "services": dict(_services(plan, blocks, rendering)),
        "networks": {"cluster": _network(label, options)},
        "volumes": volumes,
    }
    return header(plan, options, rendering) + compose_yaml(document, _COMMENTS)


def _services(
    plan: Plan, blocks: _SharedBlocks, rendering: Rendering
) -> Iterator[tuple[str, Value]]:
    # Only the first service has `build`: compose builds the image once for each such service.
    build: dict[str, Value] = {"build": _build(plan, rendering)}
    shm_sizes = {task.node: _size("shm_size", task.shm_bytes) for task in plan.tasks}
    for node in plan.nodes:
        yield node.name, _anchor(node, blocks, {**build, **shm_sizes.get(node.name, {})})
        build = {}
    for task in plan.tasks:
        yield task.name, _task(task, blocks)
    if rendering.run is not None:
        yield RUN_SERVICE, _run(plan, rendering.run, blocks)


def _network(label: dict[str, Value], options: Values) -> dict[str, Value]:
    driver: dict[str, Value] = {"com.docker.network.driver.mtu": str(MTU)}
    if options["network"] == "isolated":
        driver |= dict.fromkeys(ISOLATED, "isolated")
    # Without IPv6, whatever is the engine's default: nodes connect by IPv4.
    ipam: dict[str, Value] = {}
    if "subnet" in options:
        ipam = {"ipam": {"config": [{"subnet": str(options["subnet"])}]}}
    return {"internal": True, "enable_ipv6": False, "driver_opts": driver, "labels": label, **ipam}


class _SharedBlocks:
    """The named YAML blocks that services merge."""

    def __init__(self, plan: Plan, options: Values, folder: str, home: Home | None) -> None:
        self.gpus_by = str(options["gpus-by"])
        logging: dict[str, Value] = {} if home is None else {"logging": home.logging}
        self.service = Block({**_service(plan), **logging}, name="service")
        self.anchor = Block(_every_anchor(), (self.service,), "anchor")
        self.link = Block({"user": "0:0", "cap_add": ["NET_ADMIN"]}, name="link")
        self.task = Block(_every_task(folder, home), (self.service,), "task")
        self.no_gpu = Block(NO_GPU, name="no-gpu")
        # By CDI the engine does not set this variable, in which a CUDA image requests all GPUs.
        hidden = {"NVIDIA_VISIBLE_DEVICES": "void"} if self.gpus_by == "cdi" else {}
        self.gpu = Block({**GPU_ORDER, **hidden}, name="gpu")
        variables = _environment(plan) | (dict(home.variables) if home is not None else {})
        self.environment = Block(variables, name="environment")
        labels = {
            "lab.project": plan.name,
            "lab.cluster-sha256": plan.cluster_sha256,
            "lab.runtime": plan.runtime,
        }
        self.labels = Block(labels, name="labels")

    def used(self, plan: Plan) -> list[Block]:
        """Return the blocks that services merge, each after the blocks that it merges itself."""
        link = [self.link] if any(node.link for node in plan.nodes) else []
        gpu = [self.gpu] if plan.has_gpus else []
        first = [self.service, self.anchor, *link, self.task, self.environment, self.no_gpu]
        return [*first, *gpu, self.labels]


def _service(plan: Plan) -> dict[str, Value]:
    return {
        "image": Variable(f"${{LAB_IMAGE:-{image_of(plan)}}}"),
        "pull_policy": "never",
        "init": True,
        "user": "1000:1000",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "read_only": True,
        "tmpfs": ["/tmp"],  # noqa: S108  (a container's own)
        "pids_limit": 4096,
    }


def _build(plan: Plan, rendering: Rendering) -> dict[str, Value]:
    image = RUNTIMES[plan.runtime]
    folder, context = rendering.folder, rendering.context
    tensorflow: dict[str, Value] = {}
    if image.framework == TENSORFLOW.name:  # another version, which is not locked
        tensorflow = {"TENSORFLOW": Variable("${LAB_TENSORFLOW:-}")}
    horovod: dict[str, Value] = {"HOROVOD": image.horovod} if image.horovod else {}
    return {
        "context": folder if context == "." else f"{folder}/{context}",
        "dockerfile": rendering.dockerfile,
        "network": Variable("${LAB_BUILD_NETWORK:-default}"),
        "args": {
            "BASE_IMAGE": Variable(f"${{LAB_BASE_IMAGE:-{BASE_IMAGE}}}"),
            "REQUIREMENTS": image.requirements(gpus=plan.has_gpus),
            **tensorflow,
            **horovod,
        },
    }


def _health(role: str, start_period: str) -> dict[str, Value]:
    return {
        "test": ["CMD", "python", "-S", "-m", "lab.task.node.health", role],
        "interval": "1s",
        "timeout": "150s",
        "retries": 3,
        "start_period": start_period,
    }


def _mount(source: str, target: str) -> dict[str, Value]:
    # Otherwise the engine would create a missing directory, owned by root.
    bind: dict[str, Value] = {"create_host_path": False}
    mount: dict[str, Value] = {"type": "bind", "source": source, "target": target}
    return {**mount, "read_only": True, "bind": bind}


def _every_anchor() -> dict[str, Value]:
    return {
        "command": ["python", "-m", "lab.task.node.anchor"],
        "networks": ["cluster"],
        "ipc": "shareable",
        "shm_size": "1g",
        "healthcheck": _health("anchor", "20s"),
    }


def _every_task(folder: str, home: Home | None) -> dict[str, Value]:
    own: list[Value] = [_RUNS, _mount(f"{folder}/scripts", "/lab/scripts")]
    if home is not None:
        # Nothing is mounted below it: its owner may put a link anywhere in it.
        whole: dict[str, Value] = {"type": "volume", "source": "home", "target": home.target}
        own = [{**whole, "volume": {"nocopy": True}}]
    return {
        "command": ["python", "-m", "lab.task.agent"],
        "stop_grace_period": "15s",
        "volumes": [*own, _mount(f"{folder}/data", "/lab/data")],
        "healthcheck": _health("task", "60s"),
    }


def _environment(plan: Plan) -> dict[str, Value]:
    return {
        var.LAB_PROJECT: plan.name,
        var.LAB_CLUSTER: json.dumps(plan.cluster_spec()),
        var.LAB_RUNS: "/runs",
        var.LAB_SCRIPTS: "/lab/scripts",
        var.LAB_DATA: "/lab/data",
        var.LAB_RUNTIME: plan.runtime,
    }


def _anchor(node: PlannedNode, blocks: _SharedBlocks, own: dict[str, Value]) -> Block:
    environment: dict[str, Value] = {var.LAB_NODE: node.name}
    merges: tuple[Block, ...] = (blocks.anchor,)
    if node.link is not None:
        environment.update(link_environ(node.link.rate_bits, node.link.delay_us))
        merges = (blocks.link, blocks.anchor)
    service: dict[str, Value] = {
        **own,
        "hostname": node.name,
        "environment": Block(environment, (blocks.no_gpu,)),
        "labels": Block({"lab.node": node.name}, (blocks.labels,)),
    }
    return Block(service, merges)


def _task(task: PlannedTask, blocks: _SharedBlocks) -> Block:
    environment: dict[str, Value] = {var.LAB_NODE: task.node, var.LAB_TASK: task.name}
    if task.gpu_memory_fraction is not None:
        environment[var.LAB_GPU_MEMORY_FRACTION] = f"{task.gpu_memory_fraction:.12g}"
    joined = f"service:{task.node}"
    service: dict[str, Value] = {
        "network_mode": joined,
        "ipc": joined,
        "depends_on": {task.node: {"condition": "service_healthy", "restart": True}},
        "environment": Block(
            environment, (blocks.environment, blocks.gpu if task.gpus else blocks.no_gpu)
        ),
        **_limits(task),
    }
    if task.gpus:
        service["deploy"] = {
            "resources": {"reservations": {"devices": [_devices(task.gpus, blocks.gpus_by)]}}
        }
    labels: dict[str, Value] = {
        "lab.node": task.node,
        "lab.task": task.name,
        # The planned GPUs, to compare with those that the engine gives.
        "lab.gpus": ",".join(task.gpus),
    }
    service["labels"] = Block(labels, (blocks.labels,))
    return Block(service, (blocks.task,))


def _run(plan: Plan, run: PlannedRun, blocks: _SharedBlocks) -> Block:
    """The service that starts the run. No task depends on it, so it recreates no task."""
    healthy: dict[str, Value] = {"condition": "service_healthy"}
    environment: dict[str, Value] = {
        var.LAB_RUN: Variable(f"${{LAB_RUN-{run.command}}}"),
        var.LAB_RUN_TERMS: run.terms,
        var.LAB_ONCE: Variable("${LAB_ONCE:-}"),
    }
    service: dict[str, Value] = {
        "command": ["python", "-m", "lab.task.agent.autorun"],
        "network_mode": "none",
        "volumes": [_RUNS],
        "depends_on": dict.fromkeys((task.name for task in plan.tasks), healthy),
        "environment": Block(environment, (blocks.environment, blocks.no_gpu)),
        "labels": Block({"lab.reader": RUN_SERVICE}, (blocks.labels,)),
    }
    return Block(service, (blocks.service,))


def _limits(task: PlannedTask) -> dict[str, Value]:
    limits: dict[str, Value] = {}
    if task.cpus is not None:
        limits["cpus"] = _number(task.cpus)
    if task.cpuset is not None:
        limits["cpuset"] = task.cpuset
    return limits | _size("mem_limit", task.memory_bytes)


def _size(key: str, amount: int | None) -> dict[str, Value]:
    return {} if amount is None else {key: f"{math.ceil(amount / MIB)}m"}


def _number(value: float) -> float:
    """Return a number without the error of binary fractions; a whole one without `.0`."""
    rounded = float(f"{value:.12g}")
    return int(rounded) if rounded.is_integer() else rounded


def _devices(gpus: tuple[str, ...], gpus_by: str) -> dict[str, Value]:
    # Always ids, never a count: otherwise the engine would give all GPUs to the container.
    if gpus_by == "cdi":
        # compose requires the capabilities; the engine's CDI driver ignores them.
        ids = [f"{CDI_KIND}={gpu}" for gpu in gpus]
        return {"driver": "cdi", "device_ids": ids, "capabilities": ["gpu"]}
    return {
        "driver": "nvidia",
        "device_ids": list(gpus),
        "capabilities": ["gpu", "compute", "utility"],
    }
