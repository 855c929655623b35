"""Renders plans as compose files."""

from __future__ import annotations

from pathlib import Path

from lab.backends.compose.render import render
from lab.backends.names import COMPOSE, capabilities
from lab.backends.planner import Planner
from lab.backends.rendered_file import Rendering
from lab.experiments.faults import parse
from lab.placement.plan import Plan, PlannedRun


class ComposePlanner(Planner):
    """Renders plans as compose files."""

    name = COMPOSE

    def render(self, plan: Plan, rendering: Rendering) -> str:
        """Render a plan as a compose file; see `Planner`."""
        return render(plan, self.options, rendering)

    def render_notices(self, run: PlannedRun | None) -> list[str]:
        """One line for each fault that only `lab run` can inject."""
        return [
            f"warning: `docker compose up` ignores the fault {fault}, which needs `lab run`"
            for fault in (run.faults if run else ())
            if parse(fault).kind.on_network
        ]

    def start_hint(self, file: Path) -> str:
        """Return how compose boots a rendered file; see `Planner`."""
        is_found = str(file) == capabilities(self.name).renders[0]
        return f"boot it with `docker compose {'' if is_found else f'--file {file} '}up`"
