"""Renders plans as compose files."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Self

from lab.backends.compose.options import DEFAULTS, ComposeOptions
from lab.backends.compose.render import render
from lab.backends.names import COMPOSE, capabilities
from lab.backends.options import Values, filled
from lab.backends.planner import Planner
from lab.backends.rendered_file import Rendering
from lab.experiments.faults import parse
from lab.placement.plan import Plan, PlannedRun


class ComposePlanner(Planner):
    """Renders plans as compose files."""

    name = COMPOSE

    def __init__(self, options: ComposeOptions = DEFAULTS) -> None:
        self._options = options

    def with_options(self, values: Values) -> Self:
        """Return this object with these options of the backend alone; see `Planner`."""
        chosen = filled(capabilities(self.name).options, values)
        made = copy(self)
        made._options = replace(
            self._options, gpus_by=str(chosen["gpus-by"]), network=str(chosen["network"])
        )
        return made

    def render(self, plan: Plan, rendering: Rendering) -> str:
        """Render a plan as a compose file; see `Planner`."""
        return render(plan, self._options, rendering)

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
