"""Places configs on nodes that Slurm selects, and renders batch scripts."""

from __future__ import annotations

from pathlib import Path

from lab.backends.names import AUTO, SLURM
from lab.backends.planner import Planner
from lab.backends.rendered_file import Rendering
from lab.backends.slurm.placement import load_for_slurm, plan_for_slurm
from lab.backends.slurm.render import render
from lab.config import Cluster
from lab.errors import InputError
from lab.placement.place import Placed
from lab.placement.plan import Plan


class SlurmPlanner(Planner):
    """Places configs on nodes that Slurm selects, and renders batch scripts."""

    name = SLURM

    def plan(
        self, cluster: Cluster, mode: str, *, tensorflow: str, file: Path | None = None
    ) -> Placed:
        """Place a config on nodes that Slurm selects; see `Planner`."""
        if mode not in {AUTO, "none"}:
            raise InputError(f"--gpus {mode}: Slurm selects the GPUs", "leave it out, or use none")
        gpus = mode == AUTO
        if file is not None:
            load_for_slurm(file, gpus=gpus)
        return Placed(plan_for_slurm(cluster, gpus=gpus, tensorflow=tensorflow), None)

    def render(self, plan: Plan, rendering: Rendering) -> str:
        """Render a plan as a batch script; see `Planner`."""
        return render(plan, self.options, rendering)

    def start_hint(self, file: Path) -> str:
        """Return how a script is submitted; see `Planner`."""
        return f"submit it in the project's directory with `sbatch {file}`"
