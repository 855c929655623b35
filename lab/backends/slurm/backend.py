"""The Slurm backend: places configs on nodes that Slurm selects, and renders batch scripts."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lab.backends.rendered_file import Rendering
from lab.backends.scheduled import ScheduledBackend
from lab.backends.slurm import NAME
from lab.backends.slurm.render import render
from lab.cluster.placement.plan import Plan

if TYPE_CHECKING:
    from lab.backends.slurm.boot import SlurmBoot
    from lab.backends.slurm.environment import SlurmEnvironment


class SlurmBackend(ScheduledBackend):
    """Environments as jobs of Slurm."""

    name = NAME
    scheduler = "Slurm"
    unit = "a Slurm job"
    sets_shm = False

    def render(self, plan: Plan, rendering: Rendering) -> str:
        """Render a plan as a batch script; see `Backend`."""
        return render(plan, self.options, rendering)

    def start_hint(self, file: Path) -> str:
        """Return how a script is submitted; see `Backend`."""
        return f"submit it in the project's directory with `sbatch {file}`"

    def unavailable_reason(self) -> str | None:
        """Why no job can be submitted here, with a hint; None if it can."""
        if shutil.which("sbatch") is None:
            return "this host has no `sbatch`; log in to a cluster with Slurm"
        return None

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """Why no Python with the plan's runtime is here, with a hint; None if one is."""
        from lab.backends.python import missing_python

        return missing_python(plan, root)

    def notices(self, plan: Plan) -> Sequence[str]:
        """A line about the network of the job."""
        return ("slurm: other users of the cluster's network can reach TensorFlow's servers",)

    def environments(self) -> type[SlurmEnvironment]:
        """Return the class of its environments; see `RecordedBackend`."""
        from lab.backends.slurm.environment import SlurmEnvironment

        return SlurmEnvironment

    def boot(self, plan: Plan, *, root: Path) -> SlurmBoot:
        """Return the steps of a boot; see `Backend`."""
        from lab.backends.slurm.boot import SlurmBoot

        return SlurmBoot(plan, root.resolve(), self.options)
