"""Checks what a seat asks for, and places it on the GPUs that it gets."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec
from pydantic import ValidationError

from lab.backends.classroom.protocol import Order
from lab.classroom.planning import SeatPlan
from lab.classroom.queue.ledger import Entry
from lab.config import Cluster
from lab.config.model import Box
from lab.config.validation import validate
from lab.errors import InputError
from lab.gpu import Gpu, Inventory
from lab.placement.place import place
from lab.placement.plan import Plan, PlannedTask
from lab.runtimes import RUNTIMES
from lab.text import short
from lab.units import MIB, memory_for_people

MAX_CONFIG_CHARACTERS: Final = 1 << 14
"""The maximum size of a config; any config of this size is read in less than a second."""

MAX_NODES: Final = 13
"""The maximum number of nodes: a /28 has 14 addresses, and the host has one."""

MAX_TASKS: Final = 32

_LEAST_BYTES: Final = 64 * MIB
_PROJECT_CHARACTERS: Final = 24  # with a hyphen and six more, 31
_ID: Final = re.compile("[0-9a-f]{16}")
_MAX_PATH: Final = 1000
_UPDATE: Final = "update lab in the seat"


def project_name(class_name: str, seat: str) -> str:
    """Return the name on the host of a seat's environment, at most 31 characters."""
    digest = hashlib.sha256(f"{class_name}\0{seat}".encode()).hexdigest()
    return f"{f'{class_name}-{seat}'[:_PROJECT_CHARACTERS]}-{digest[:6]}"


def admitted(order: Order, class_name: str, seat: str, now_unix: float) -> Entry:
    """Return the entry for a seat's order at a time, in seconds since the epoch.

    Raises:
        InputError: A part of the order is invalid, or too large for a queue.
    """
    cluster = cluster_of(order.config)
    if order.runtime not in RUNTIMES:
        raise InputError(
            f"no framework {short(order.runtime)!r}", f"use one of {', '.join(RUNTIMES)}"
        )
    if not _ID.fullmatch(order.id):
        raise InputError("the id is invalid", _UPDATE)
    # What is at the path does not matter: it belongs to the seat.
    for path in (order.folder, order.directory):
        if len(path) > _MAX_PATH or not path.isprintable() or not path.startswith("/"):
            raise InputError(f"not a path in the seat: {short(path)!r}", "use a shorter path")
    return Entry(
        order=order,
        seat=seat,
        name=cluster.name,
        project=project_name(class_name, seat),
        needs=sum(node.gpu_count for node in cluster.nodes.values()) if order.with_gpus else 0,
        since_unix=now_unix,
    )


def cluster_of(config: str) -> Cluster:
    """Return the cluster of a config; a list of GPU indices counts as its length.

    The config is JSON: the seat reads the YAML, which is slow and can be made slower.

    Raises:
        InputError: The config is invalid, is too large for a queue, or names GPUs by UUID.
    """
    if len(config) > MAX_CONFIG_CHARACTERS:
        raise InputError(
            f"the cluster config has more than {MAX_CONFIG_CHARACTERS:,} characters",
            "use fewer nodes",
        )
    try:
        cluster = Cluster.model_validate(msgspec.json.decode(config))
    except (msgspec.MsgspecError, RecursionError, ValidationError) as error:
        first = short(str(error).splitlines()[0])
        raise InputError(f"the cluster config is invalid: {first}", _UPDATE) from error
    if (problem := next(validate(cluster), None)) is not None:
        raise InputError(f"the cluster config is invalid: {short(problem.text())}", _UPDATE)
    tasks = sum(len(job.on) for job in cluster.jobs.values())
    counts = {"nodes": (len(cluster.nodes), MAX_NODES), "tasks": (tasks, MAX_TASKS)}
    for noun, (count, limit) in counts.items():
        if count > limit:
            raise InputError(
                f"the cluster has {count} {noun}, and the queue allows {limit}",
                "use a smaller config",
            )
    for name, node in cluster.nodes.items():
        if any(isinstance(pin, str) for pin in node.pins):
            raise InputError(
                f"nodes.{name}.gpus names a GPU by its UUID, but the queue chooses the GPUs",
                f"use their number: `gpus: {node.gpu_count}`",
            )
    return cluster.with_gpu_counts().model_copy(update={"box": Box()})


def plan_of(entry: Entry, host: Inventory, seat: SeatPlan) -> Plan:
    """Place the cluster of an entry on its GPUs, within the limits of its seat.

    Args:
        entry: The entry.
        host: This host. Its driver may not list a GPU; then the boot reports the lost GPU.
        seat: The limits.

    Raises:
        LabError: The cluster does not fit.
    """
    known = {gpu.device_id: gpu for gpu in host.gpus}
    gpus = tuple(known.get(gpu, Gpu(at, gpu)) for at, gpu in enumerate(entry.gpus))
    mode = "uuid" if gpus else "none"
    plan = place(cluster_of(entry.order.config), replace(host, mode=mode, gpus=gpus, notices=()))
    return replace(
        plan,
        name=entry.project,
        runtime=entry.order.runtime,
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
            cpus=min(filter(None, (task.cpus, cpus)), default=None),
            memory_bytes=min(filter(None, (task.memory_bytes, memory)), default=None),
        )
        for task in tasks
    )
