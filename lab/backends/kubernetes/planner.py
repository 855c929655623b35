"""Places configs on hosts that Kubernetes selects, and renders its objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lab.backends.kubernetes.render import groups_of, render
from lab.backends.names import KUBERNETES
from lab.backends.rendered_file import Rendering
from lab.backends.scheduled import ScheduledPlanner
from lab.config import Cluster
from lab.config.diagnostics import Problem
from lab.errors import InputError
from lab.placement.place import Placed
from lab.placement.plan import Plan

_LONGEST: Final = 50
"""The longest name of a job with its project: the name of a JobSet's pod has 13 characters more."""

_MOST_IN_QUEUE: Final = 18
"""The most replicated jobs of a JobSet that Kueue admits; versions before July 2026 admit fewer."""


class KubernetesPlanner(ScheduledPlanner):
    """Places configs on hosts that Kubernetes selects, and renders its objects."""

    name = KUBERNETES
    scheduler = "Kubernetes"
    unit = "a Kubernetes pod"

    def plan(
        self, cluster: Cluster, mode: str, *, runtime: str, file: Path | None = None
    ) -> Placed:
        """Place a config on hosts that Kubernetes selects; see `ScheduledPlanner`."""
        if self.options["queue"] and self.options["flavour"] == "plain":
            raise InputError(
                "-o queue: Kueue would admit each Job of -o flavour=plain alone",
                "use -o flavour=jobset",
            )
        placed = super().plan(cluster, mode, runtime=runtime, file=file)
        count = len(groups_of(placed.plan, is_plain=False)) + 1  # and that of a run
        if self.options["queue"] and count > _MOST_IN_QUEUE:
            raise InputError(
                f"-o queue: Kueue admits at most {_MOST_IN_QUEUE} replicated jobs, not {count}",
                "give all tasks of a job the same cpus, memory and gpus",
            )
        return placed

    def unsupported(self, cluster: Cluster, *, gpus: bool) -> Iterator[Problem]:
        """Yield a problem for each value that pods cannot have; see `ScheduledPlanner`."""
        yield from super().unsupported(cluster, gpus=gpus)
        for name, node in cluster.nodes.items() if gpus else ():
            if any(isinstance(pin, str) for pin in node.pins):
                message = "Kubernetes selects the GPUs; give their number, such as `gpus: 1`"
                yield Problem(("nodes", name, "gpus"), message)
        yield from _names(cluster)

    def render(self, plan: Plan, rendering: Rendering) -> str:
        """Render a plan as objects of Kubernetes; see `Planner`."""
        return render(plan, self.options, rendering)

    def start_hint(self, file: Path) -> str:
        """Return how the objects are created; see `Planner`."""
        return f"boot it with `kubectl apply --server-side --filename {file}`"


def _names(cluster: Cluster) -> Iterator[Problem]:
    """Yield a problem for each name that Kubernetes refuses."""
    if cluster.name.endswith("-"):
        message = "a Kubernetes name ends with a letter or a digit; remove the hyphen"
        yield Problem(("name",), message)
    for job in cluster.jobs:
        if len(name := f"lab-{cluster.name}-{job}") > _LONGEST:
            message = f"{name} is too long for Kubernetes; shorten it, or `name:`"
            yield Problem(("jobs", job), message, on_key=True)
