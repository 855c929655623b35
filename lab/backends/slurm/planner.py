"""Places configs on nodes that Slurm selects, and renders batch scripts."""

from __future__ import annotations

from pathlib import Path

from lab.backends.names import SLURM
from lab.backends.rendered_file import Rendering
from lab.backends.scheduled import ScheduledPlanner
from lab.backends.slurm.render import render
from lab.placement.plan import Plan


class SlurmPlanner(ScheduledPlanner):
    """Places configs on nodes that Slurm selects, and renders batch scripts."""

    name = SLURM
    scheduler = "Slurm"
    unit = "a Slurm job"
    sets_shm = False

    def render(self, plan: Plan, rendering: Rendering) -> str:
        """Render a plan as a batch script; see `Planner`."""
        return render(plan, self.options, rendering)

    def start_hint(self, file: Path) -> str:
        """Return how a script is submitted; see `Planner`."""
        return f"submit it in the project's directory with `sbatch {file}`"
