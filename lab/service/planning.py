"""Make a plan from a config: the project, the placement and its warnings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lab.backends.names import AUTO
from lab.backends.registry import backend_named
from lab.config import Cluster
from lab.errors import LabError, Notify
from lab.formatting import counted
from lab.gpu import Inventory
from lab.gpu.support import Support, build_of, by_gpus
from lab.placement.gpu_usage import gpus_in_use
from lab.placement.place import place_here
from lab.placement.plan import Plan
from lab.tf_versions import CURRENT


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan with its warnings, before anything is booted.

    Attributes:
        plan: The plan.
        busy: One line for each of its GPUs that is in use.
        without_gpus: Why the plan has no GPUs although the config asks for some; else "".
        unusable: One line for each reason why TensorFlow cannot use some of its GPUs.
        limited: One line for each limit of TensorFlow on some of its GPUs.
    """

    plan: Plan
    busy: tuple[str, ...]
    without_gpus: str
    unusable: tuple[str, ...] = ()
    limited: tuple[str, ...] = ()

    def report_warnings(
        self, notify: Notify, *, warn: Notify | None = None, strict: bool = False
    ) -> None:
        """Report the notices and warnings of the plan.

        Args:
            notify: Receives notices.
            warn: Receives warnings; None: `notify` receives them.
            strict: Refuse a plan with less than the config asks for, with a GPU in use, or with one
                that TensorFlow cannot use.

        Raises:
            LabError: `strict` refuses the plan.
        """
        warnings = [*self.unusable, *self.busy]
        problems = [*filter(None, [self.without_gpus]), *self.plan.shortfalls, *warnings]
        if strict and problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise LabError(
                f"refused by --strict: {problems[0]}{more}",
                "change the config, or leave out --strict",
            )
        for notice in (*self.plan.notices, *self.limited):
            notify(notice)
        for line in warnings:
            (warn or notify)(f"warning: {line}")


def make_plan(
    cluster: Cluster,
    mode: str,
    *,
    tensorflow: str = CURRENT.tensorflow,
    backend: str = AUTO,
    file: Path | None = None,
    explain: Notify | None = None,
) -> PlanResult:
    """Place a cluster on this host.

    Args:
        cluster: The config.
        mode: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        tensorflow: The tasks' TensorFlow version.
        backend: The backend's name, or `auto`.
        file: The file of the config, for the line of an error; None: it has none.
        explain: Receives the reason for each node's GPUs and each task's CPUs.

    Raises:
        InputError: The config has values, or the mode is one, that the backend cannot have.
        LabError: The cluster does not fit the host.
    """
    placed = (
        place_here(cluster, mode, tensorflow)
        if backend == AUTO
        else backend_named(backend).plan(cluster, mode, tensorflow=tensorflow, file=file)
    )
    plan, inventory = placed.plan, placed.inventory
    if inventory is None:
        return PlanResult(plan, (), "")
    if explain is not None:
        for reason in plan.reasons:
            explain(reason)
    without_gpus = ""
    if mode == AUTO and plan.mode == "none" and cluster.gpus_needed:
        last = inventory.notices[-1] if inventory.notices else "this host has none"
        why = "; ".join((*inventory.left_out, last))
        without_gpus = f"{cluster.name!r} asks for {counted(cluster.gpus_needed, 'GPU')}: {why}"
    unusable, limited = _support(plan, inventory)
    return PlanResult(plan, tuple(gpus_in_use(plan, inventory)), without_gpus, unusable, limited)


def _support(plan: Plan, inventory: Inventory) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a line for the plan's GPUs that cannot be used, and for those with a limit."""
    pinned = {device for task in plan.tasks for device in task.gpus}
    gpus = [gpu for gpu in inventory.gpus if gpu.device_id in pinned]
    found = by_gpus(gpus, inventory, build_of(plan.tensorflow, os.environ))
    lines = {each: f"{names}: {each.reason}; {each.fix}" for each, names in found.items()}
    return (
        tuple(line for each, line in lines.items() if not each.status.usable),
        tuple(line for each, line in lines.items() if each.status is Support.NO_CUDNN),
    )
