"""From a description to a plan: what is said of it, and what `--strict` refuses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lab.backends.choose import AUTO
from lab.cli.output import say
from lab.config import Cluster
from lab.errors import LabError
from lab.gpu import take_inventory
from lab.numbers import plural
from lab.placement.gpu_usage import busy
from lab.placement.place import place
from lab.placement.plan import Plan
from lab.tf_versions import CURRENT


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan that nothing was done with yet.

    Attributes:
        plan: The plan.
        busy: One line for each of its cards that is in use.
        without_gpus: Why it has no GPUs although the description asks for some; "" where it has.
    """

    plan: Plan
    busy: tuple[str, ...]
    without_gpus: str

    def heed(self, *, strict: bool) -> None:
        """Say what is to be said of the plan before anything is done with it.

        Args:
            strict: Refuse a plan that gives less than the description says, or a card in use.

        Raises:
            LabError: `strict` refuses it.
        """
        faults = [*filter(None, [self.without_gpus]), *self.plan.shortfalls, *self.busy]
        if strict and faults:
            more = f" (and {len(faults) - 1} more like this)" if len(faults) > 1 else ""
            raise LabError(
                f"refused by --strict: {faults[0]}{more}",
                "change that, or leave out --strict to go on all the same",
            )
        for notice in self.plan.notices:
            say(notice)
        for line in self.busy:
            say(f"warning: {line}")


def draft(
    cluster: Cluster, mode: str, *, explain: bool, tensorflow: str = CURRENT.tensorflow
) -> Draft:
    """Place a description on the box.

    Args:
        cluster: The description.
        mode: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        explain: Say why each node has its cards and each task its CPUs.
        tensorflow: The version that the tasks are to have.

    Raises:
        LabError: It does not fit the box.
    """
    inventory = take_inventory(mode, cluster)
    plan = replace(place(cluster, inventory), tensorflow=tensorflow)
    if explain:
        for reason in plan.reasons:
            say(reason)
    without_gpus = ""
    if mode == AUTO and plan.mode == "none" and cluster.gpus_needed:
        why = inventory.notices[-1] if inventory.notices else "none is there"
        without_gpus = f"{cluster.name!r} asks for {plural(cluster.gpus_needed, 'GPU')}: {why}"
    return Draft(plan, tuple(busy(plan, inventory)), without_gpus)
