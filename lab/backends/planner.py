"""The part of a backend that needs no environment: it places configs and renders files."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lab.backends.names import TARGETS, capabilities
from lab.backends.options import Values, defaults_of
from lab.errors import InputError

if TYPE_CHECKING:
    # Many commands need only the names of the backends.
    from lab.backends.rendered_file import Rendering
    from lab.config import Cluster
    from lab.placement.place import Placed
    from lab.placement.plan import Plan, PlannedRun


class Planner:
    """Places configs on this host, and refuses to render.

    Attributes:
        name: The backend's name, as `lab.backends.names` lists it.
        options: The values of all the backend's own options.
    """

    name: str

    def __init__(self) -> None:
        self.options: Values = defaults_of(capabilities(self.name).options)

    def with_options(self, values: Values) -> Self:
        """Return a copy with these values of the backend's own options."""
        if not values:
            return self
        planner = copy(self)
        planner.options = {**self.options, **values}
        return planner

    def plan(
        self, cluster: Cluster, mode: str, *, runtime: str, file: Path | None = None
    ) -> Placed:
        """Place a config where the tasks of this backend run; by default on this host.

        Args:
            cluster: The config.
            mode: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
            runtime: The tasks' runtime.
            file: The config's file, for line numbers in errors; None if it has none.

        Raises:
            InputError: The backend does not support a value of the config or the mode, or an
                option does not fit the config.
            LabError: The config does not fit the host.
        """
        from lab.placement.place import place_here  # noqa: PLC0415  (imports pydantic)

        del file
        return place_here(cluster, mode, runtime)

    def render(self, plan: Plan, rendering: Rendering) -> str:
        """Render a plan as a file that another program boots: the same plan gives the same bytes.

        Args:
            plan: The plan, with the final mode and runtime.
            rendering: The run, and the paths of the config and of the project.

        Raises:
            InputError: The backend renders no file.
        """
        del plan, rendering
        raise InputError(
            f"backend {self.name} has no file to render", f"use --target {' or '.join(TARGETS)}"
        )

    def render_notices(self, run: PlannedRun | None) -> Sequence[str]:
        """One line for each feature of a run that a rendered file does not support."""
        return ()

    def start_hint(self, file: Path) -> str:
        """Return how to boot a rendered file, as an instruction; "" without a file."""
        return ""
