"""Renders plans as compose files."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

from lab.backends.compose.render import render
from lab.backends.names import COMPOSE, capabilities
from lab.backends.planner import Planner
from lab.backends.rendered_file import Rendering
from lab.errors import InputError
from lab.experiments.faults import parse
from lab.formatting import counted
from lab.placement.plan import Plan, PlannedRun

if TYPE_CHECKING:  # as in the class that this one derives from
    from lab.config import Cluster
    from lab.placement.place import Placed


class ComposePlanner(Planner):
    """Renders plans as compose files."""

    name = COMPOSE

    def plan(
        self, cluster: Cluster, mode: str, *, runtime: str, file: Path | None = None
    ) -> Placed:
        """Place a config on this host; see `Planner`."""
        self._check_subnet(len(cluster.nodes))
        return super().plan(cluster, mode, runtime=runtime, file=file)

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

    def _check_subnet(self, nodes: int) -> None:
        """Refuse a subnet that has too few addresses for the nodes.

        Raises:
            InputError: It is too small.
        """
        subnet = str(self.options["subnet"])
        # The network and its broadcast have an address, too, and the gateway, if there is one.
        needed = nodes + (2 if self.options["network"] == "isolated" else 3)
        if subnet and IPv4Network(subnet).num_addresses < needed:
            prefix = 32 - (needed - 1).bit_length()
            raise InputError(
                f"-o subnet={subnet} is too small for {counted(nodes, 'node')}",
                f"give a range of /{prefix} or larger",
            )
