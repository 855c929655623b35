"""The compose backend: places and renders configs, and finds environments of containers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lab.backends.base import Backend
from lab.backends.checks import Check
from lab.backends.compose.render import render
from lab.backends.names import COMPOSE, capabilities
from lab.backends.rendered_file import Rendering
from lab.base.errors import InputError, LabError
from lab.base.shipped import BASE_IMAGE_TOOL
from lab.base.threads import in_background
from lab.cluster.placement.plan import Plan, PlannedRun
from lab.protocol.experiments.faults import parse

if TYPE_CHECKING:
    from lab.backends.checks import Host
    from lab.backends.compose.boot import ComposeBoot
    from lab.backends.compose.environment import ComposeEnvironment
    from lab.backends.engine.client import Engine


class ComposeBackend(Backend):
    """Containers of `docker compose`."""

    name = COMPOSE

    @cached_property
    def _engine(self) -> Engine:
        from lab.backends.engine.client import Engine

        return Engine()

    def render(self, plan: Plan, rendering: Rendering) -> str:
        """Render a plan as a compose file; see `Backend`."""
        return render(plan, self.options, rendering)

    def render_notices(self, run: PlannedRun | None) -> list[str]:
        """One line for each fault that only `lab run` can inject."""
        return [
            f"warning: `docker compose up` ignores the fault {fault}, which needs `lab run`"
            for fault in (run.faults if run else ())
            if parse(fault).kind.on_network
        ]

    def start_hint(self, file: Path) -> str:
        """Return how compose boots a rendered file; see `Backend`."""
        is_found = str(file) == capabilities(self.name).renders[0]
        return f"boot it with `docker compose {'' if is_found else f'--file {file} '}up`"

    def task_path(self, path: Path, root: Path) -> str:
        """Return the path in a container; see `Backend`."""
        data = (root / "data").resolve()  # as the compose file mounts it
        if not path.is_relative_to(data):
            raise InputError(
                f"--data_dir: {path} is not in {data}, and containers cannot see other directories",
                "move it there, or use --backend local",
            )
        return str(Path("/lab/data") / path.relative_to(data))

    def unavailable_reason(self) -> str | None:
        """Why there is no engine with compose here, with a hint; None if there is one."""
        from lab.backends.compose.cli import compose_version, docker

        try:
            docker()
            # compose starts while docker-py is imported: each takes 0.2 s.
            compose = in_background(compose_version)
            try:
                self._engine.version()
            finally:
                compose.exception()  # waits, so that no compose process is left
            compose.result()
        except LabError as error:
            return str(error)
        return None

    def checks(self, host: Host) -> Iterator[Check]:
        """Add a check of the engine's version; see `Backend`."""
        from lab.backends.engine.info import check_engine, read_engine

        yield from super().checks(host)
        yield Check("engine", lambda: check_engine(read_engine()))

    def gpu_checks(self) -> Iterator[Check]:
        """Yield the check of the container toolkit; see `Backend`."""
        from lab.backends.engine.info import check_toolkit, read_engine

        yield Check("container toolkit", lambda: check_toolkit(read_engine()))

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """Why the plan's image is missing and cannot be built, with a hint; None if it is usable.

        An image with another version of lab's code counts as missing.

        Raises:
            LabError: The engine does not answer, or the user named an image with another version.
        """
        from lab.backends.compose.image_build import image_builder

        with image_builder(self._engine, plan, root, self.options) as builder:
            if not (problem := builder.problem()) or builder.has_base():
                return None
        return (
            f"{problem}, and its base {builder.image.base} cannot be fetched; without"
            f" a registry, make it with `{BASE_IMAGE_TOOL}` and set"
            " LAB_BASE_IMAGE=lab-base:bookworm"
        )

    def must_build(self, plan: Plan, *, root: Path) -> bool:
        """Whether there is no image of the plan's name; one with older code is built in seconds.

        Raises:
            LabError: The engine does not answer.
        """
        from lab.backends.compose.image_build import image_builder, image_digest

        with image_builder(self._engine, plan, root, self.options) as builder:
            return image_digest(self._engine, builder.image.name) is None

    def projects(self) -> set[str]:
        """Names of all environments that have a container, network or volume."""
        from lab.backends.compose.cleanup import projects

        return projects(self._engine)

    def find_any(self, project: str) -> ComposeEnvironment | None:
        """The environment of this name: up, stopped, or only its volume; None if there is none."""
        from lab.backends.compose.cleanup import list_resources
        from lab.backends.compose.environment import ComposeEnvironment

        environment = ComposeEnvironment(self._engine, project)
        exists = environment.containers or list_resources(self._engine, project)
        return environment if exists else None

    def boot(self, plan: Plan, *, root: Path) -> ComposeBoot:
        """Return the steps of a boot; see `Backend`."""
        from lab.backends.compose.boot import ComposeBoot

        return ComposeBoot(plan, root, self._engine, self.options)
