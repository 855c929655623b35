"""Checks what a seat asks for, and places it on the GPUs that it gets."""

from __future__ import annotations

import hashlib
import itertools
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from lab.backends.classroom.protocol import MAX_CONFIG_CHARACTERS, Order
from lab.classroom.planning import SeatPlan
from lab.classroom.queue.ledger import Entry
from lab.config import Cluster
from lab.config.load import parse_cluster
from lab.config.model import Box
from lab.errors import InputError
from lab.gpu import Gpu, Inventory
from lab.placement.place import place
from lab.placement.plan import Plan, PlannedTask
from lab.text import short
from lab.tf_versions import IMAGES
from lab.units import MIB, memory_for_people

MAX_NODES: Final = 13
"""The maximum number of nodes: a /28 has 14 addresses, and the host has one."""

MAX_TASKS: Final = 32

T = TypeVar("T", int, float)

_LEAST_BYTES: Final = 64 * MIB
_PROJECT_CHARACTERS: Final = 24  # with a hyphen and six more, 31
_FILE: Final = "the cluster config"
_SHA256: Final = re.compile("[0-9a-f]{64}")
_MAX_FOLDER: Final = 1000


def project_names(class_name: str, seat: str) -> Iterator[str]:
    """Yield the names on the host that a seat's environments have, at most 31 characters each."""
    for number in itertools.count(1):
        digest = hashlib.sha256(f"{class_name}\0{seat}\0{number}".encode()).hexdigest()
        yield f"{f'{class_name}-{seat}'[:_PROJECT_CHARACTERS]}-{digest[:6]}"


def admitted(
    order: Order, class_name: str, seat: str, used: Collection[str], now_unix: float
) -> Entry:
    """Return the entry for a seat's order.

    Args:
        order: The order.
        class_name: The class.
        seat: The seat.
        used: The names on the host that are in use.
        now_unix: The time, in seconds since the epoch.

    Raises:
        ConfigError: The config is invalid.
        InputError: A part of the order is invalid, or too large for a queue.
    """
    cluster = cluster_of(order.config)
    if order.tensorflow not in IMAGES:
        raise InputError(
            f"no TensorFlow version {short(order.tensorflow)!r}", f"use one of {', '.join(IMAGES)}"
        )
    if not _SHA256.fullmatch(order.cluster_sha256):
        raise InputError("cluster_sha256 is no digest", "update lab in the seat")
    return Entry(
        id=secrets.token_hex(8),
        seat=seat,
        name=cluster.name,
        project=next(each for each in project_names(class_name, seat) if each not in used),
        needs=sum(node.gpu_count for node in cluster.nodes.values()) if order.with_gpus else 0,
        folder=short(order.folder, _MAX_FOLDER),
        cluster_sha256=order.cluster_sha256,
        tensorflow=order.tensorflow,
        requested_unix=now_unix,
    )


def cluster_of(config: str) -> Cluster:
    """Return the cluster of a config; a list of GPU indices counts as its length.

    Raises:
        ConfigError: The config is invalid.
        InputError: It is too large for a queue, or names GPUs by UUID.
    """
    if len(config) > MAX_CONFIG_CHARACTERS:
        raise InputError(
            f"{_FILE} has more than {MAX_CONFIG_CHARACTERS:,} characters", "use fewer nodes"
        )
    cluster = parse_cluster(config.encode(errors="replace"), _FILE)
    tasks = sum(len(job.on) for job in cluster.jobs.values())
    for what, count, limit in (
        ("nodes", len(cluster.nodes), MAX_NODES),
        ("tasks", tasks, MAX_TASKS),
    ):
        if count > limit:
            raise InputError(
                f"{cluster.name!r} has {count} {what}, and the queue allows {limit}",
                "use a smaller config",
            )
    for name, node in cluster.nodes.items():
        if any(isinstance(pin, str) for pin in node.pins):
            raise InputError(
                f"nodes.{name}.gpus names a GPU by its UUID, but the queue chooses the GPUs",
                f"use their number: `gpus: {node.gpu_count}`",
            )
    return cluster.with_gpu_counts().model_copy(update={"box": Box()})


def plan_of(entry: Entry, cluster: Cluster, host: Inventory, seat: SeatPlan) -> Plan:
    """Place the cluster of an entry on its GPUs, within the limits of its seat.

    Args:
        entry: The entry.
        cluster: Its cluster.
        host: This host. Its driver may not list a GPU; then the boot reports the lost GPU.
        seat: The limits.

    Raises:
        LabError: The cluster does not fit.
    """
    known = {gpu.device_id: gpu for gpu in host.gpus}
    gpus = tuple(known.get(each, Gpu(at, each)) for at, each in enumerate(entry.gpus))
    plan = place(cluster, replace(host, mode="uuid" if gpus else "none", gpus=gpus, notices=()))
    return replace(
        plan,
        name=entry.project,
        tensorflow=entry.tensorflow,
        cluster_sha256=entry.cluster_sha256,
        tasks=_limited(plan.tasks, seat),
    )


def _limited(tasks: Sequence[PlannedTask], seat: SeatPlan) -> tuple[PlannedTask, ...]:
    """Limit each task to an equal part of the seat's CPUs and memory.

    No task is pinned to CPUs: the environments of several seats run at the same time.
    """
    cpus = None if seat.cpus is None else seat.cpus / len(tasks)
    memory = None if seat.memory_bytes is None else seat.memory_bytes // len(tasks)
    if memory is not None and memory < _LEAST_BYTES:
        raise InputError(
            f"the seat's memory gives each task {memory_for_people(memory)}, and a task needs"
            f" {memory_for_people(_LEAST_BYTES)}",
            "use fewer tasks",
        )
    return tuple(
        replace(
            task,
            cpuset=None,
            cpus=_least(task.cpus, cpus),
            memory_bytes=_least(task.memory_bytes, memory),
        )
        for task in tasks
    )


def _least(asked: T | None, limit: T | None) -> T | None:
    stated = [each for each in (asked, limit) if each is not None]
    return min(stated, default=None)
