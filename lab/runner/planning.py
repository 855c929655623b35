"""Place a config on this host, and warn of what the plan lacks."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType

from lab.backends.names import AUTO
from lab.backends.options import Values
from lab.backends.registry import backend_named
from lab.base.errors import LabError
from lab.base.formatting import counted
from lab.base.log import LOG
from lab.cluster.config import Cluster
from lab.cluster.gpu import Inventory
from lab.cluster.placement.place import Placed, place_here
from lab.cluster.placement.plan import Plan
from lab.protocol.runtimes import TENSORFLOW


def make_plan(
    cluster: Cluster,
    mode: str,
    *,
    runtime: str = TENSORFLOW.name,
    backend: str = AUTO,
    own: Values = MappingProxyType({}),
    file: Path | None = None,
    explain: bool = False,
) -> Placed:
    """Place a cluster on this host.

    Args:
        cluster: The config.
        mode: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        runtime: The tasks' runtime.
        backend: The backend's name, or `auto`.
        own: The options of the backend alone that are given, by their names.
        file: The file of the config, for the line of an error; None: it has none.
        explain: Report the reason for each node's GPUs and each task's CPUs.

    Raises:
        InputError: The config has values, or the mode is one, that the backend cannot have; or an
            option does not fit the config.
        LabError: The cluster does not fit the host.
    """
    if backend == AUTO:
        placed = place_here(cluster, mode, runtime)
    else:
        placed = backend_named(backend, own).plan(cluster, mode, runtime=runtime, file=file)
    if explain and placed.inventory is not None:
        for reason in placed.plan.reasons:
            LOG.info(reason)
    return placed


def report_warnings(
    placed: Placed,
    cluster: Cluster,
    mode: str,
    *,
    strict: bool = False,
) -> None:
    """Report the notices and warnings of a plan, before anything is booted.

    Args:
        placed: The plan and its host.
        cluster: The config.
        mode: How GPUs were to be pinned.
        strict: Refuse a plan with less than the config asks for, with a GPU in use, or with one
            that TensorFlow cannot use.

    Raises:
        LabError: `strict` refuses the plan.
    """
    plan, inventory = placed.plan, placed.inventory
    missing, warnings = list(plan.shortfalls), list[str]()
    if inventory is not None and mode == AUTO and plan.mode == "none" and cluster.gpus_needed:
        missing.insert(0, _without_gpus(cluster, inventory))
    if inventory is not None and inventory.gpus:
        warnings = _gpu_warnings(plan, inventory)
    problems = [*missing, *warnings]
    if strict and problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise LabError(
            f"refused by --strict: {problems[0]}{more}", "change the config, or leave out --strict"
        )
    for notice in plan.notices:
        LOG.info(notice)
    for line in warnings:
        LOG.warning(f"warning: {line}")


def _without_gpus(cluster: Cluster, inventory: Inventory) -> str:
    """Return why a plan has no GPUs although its config asks for some."""
    last = inventory.notices[-1] if inventory.notices else "this host has none"
    why = "; ".join((*inventory.left_out, last))
    return f"{cluster.name!r} asks for {counted(cluster.gpus_needed, 'GPU')}: {why}"


def _gpu_warnings(plan: Plan, inventory: Inventory) -> list[str]:
    """Return a line for the plan's GPUs that cannot be used or are in use."""
    # Imported here: a plan without GPUs needs neither.
    from lab.cluster.gpu.support import Support, build_of, by_gpus  # noqa: PLC0415
    from lab.cluster.placement.place import gpus_in_use  # noqa: PLC0415

    pinned = {device for task in plan.tasks for device in task.gpus}
    gpus = [gpu for gpu in inventory.gpus if gpu.device_id in pinned]
    supports = by_gpus(gpus, build_of(plan.runtime, os.environ))
    too_old = [str(support) for support in supports if support.status is Support.TOO_OLD]
    return [*too_old, *gpus_in_use(plan, inventory)]
