"""The Kubernetes backend: places configs on hosts that Kubernetes selects, and renders objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.backends.kubernetes import NAME
from lab.backends.kubernetes.render import groups_of, render
from lab.backends.rendered_file import Rendering
from lab.backends.scheduled import ScheduledBackend
from lab.base.errors import InputError
from lab.cluster.config import Cluster
from lab.cluster.config.diagnostics import Problem
from lab.cluster.placement.place import Placed
from lab.cluster.placement.plan import Plan

if TYPE_CHECKING:
    from lab.backends.kubernetes.boot import KubernetesBoot
    from lab.backends.kubernetes.environment import KubernetesEnvironment

_LONGEST: Final = 50
"""The longest name of a job with its project: the name of a JobSet's pod has 13 characters more."""

_MOST_IN_QUEUE: Final = 18
"""The most replicated jobs of a JobSet that Kueue admits; versions before July 2026 admit fewer."""


class KubernetesBackend(ScheduledBackend):
    """Environments as pods of Kubernetes."""

    name = NAME
    scheduler = "Kubernetes"
    unit = "a Kubernetes pod"

    def plan(
        self, cluster: Cluster, mode: str, *, runtime: str, file: Path | None = None
    ) -> Placed:
        """Place a config on hosts that Kubernetes selects; see `ScheduledBackend`."""
        if self.options["queue"] and self.options["flavour"] == "plain":
            raise InputError(
                "-o queue: with -o flavour=plain, Kueue would admit each Job separately",
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
        """Yield a problem for each value that pods cannot have; see `ScheduledBackend`."""
        yield from super().unsupported(cluster, gpus=gpus)
        for name, node in cluster.nodes.items() if gpus else ():
            if any(isinstance(pin, str) for pin in node.pins):
                message = "Kubernetes selects the GPUs; give their number, such as `gpus: 1`"
                yield Problem(("nodes", name, "gpus"), message)
        yield from _names(cluster)

    def render(self, plan: Plan, rendering: Rendering) -> str:
        """Render a plan as objects of Kubernetes; see `Backend`."""
        return render(plan, self.options, rendering)

    def start_hint(self, file: Path) -> str:
        """Return how the objects are created; see `Backend`."""
        return f"boot it with `kubectl apply --server-side --filename {file}`"

    def task_path(self, path: Path, root: Path) -> str:
        """Refuse a path: pods see no directory of this host.

        Raises:
            InputError: Always.
        """
        del root
        raise InputError(
            f"--data_dir: pods cannot see {path}",
            "build an image with the data, or use --backend local",
        )

    def unavailable_reason(self) -> str | None:
        """Why no pods can be started from here, with a hint; None if they can."""
        from lab.backends.kubernetes.api import is_configured, kubeconfig

        if not is_configured():
            return f"there is no kubeconfig {kubeconfig()}; set KUBECONFIG"
        return super().unavailable_reason()

    def environments(self) -> type[KubernetesEnvironment]:
        """Return the class of its environments; see `RecordedBackend`."""
        from lab.backends.kubernetes.environment import KubernetesEnvironment

        return KubernetesEnvironment

    def boot(self, plan: Plan, *, root: Path) -> KubernetesBoot:
        """Return the steps of a boot; see `Backend`."""
        from lab.backends.kubernetes.boot import KubernetesBoot

        return KubernetesBoot(plan, root.resolve(), self.options)


def _names(cluster: Cluster) -> Iterator[Problem]:
    """Yield a problem for each name that Kubernetes refuses."""
    if cluster.name.endswith("-"):
        message = "a Kubernetes name ends with a letter or a digit; remove the hyphen"
        yield Problem(("name",), message)
    for job in cluster.jobs:
        if len(name := f"lab-{cluster.name}-{job}") > _LONGEST:
            message = f"{name} is too long for Kubernetes; shorten it, or `name:`"
            yield Problem(("jobs", job), message, on_key=True)
