"""The compose backend: boots, finds and lists environments of containers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.backends.base import Backend
from lab.backends.boot import Boot
from lab.backends.checks import Check
from lab.backends.compose.cleanup import NO_RESOURCES, list_resources, projects, remove
from lab.backends.compose.cli import (
    Compose,
    compose_version,
    docker,
    remove_compose_file,
    write_compose_file,
)
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.image_build import ImageBuilder, image_builder, image_digest
from lab.backends.compose.readiness import restart_detached_tasks, wait_until_up
from lab.backends.compose.render import ComposePlanner, render
from lab.backends.engine.client import Engine
from lab.backends.engine.info import check_engine, check_toolkit, read_engine
from lab.backends.gpu_record import Handover, Holder, holder_of
from lab.backends.names import COMPOSE
from lab.backends.options import Values
from lab.backends.rendered_file import Rendering
from lab.backends.selection import is_same_folder
from lab.base.errors import InputError, LabError
from lab.base.log import LOG
from lab.base.shipped import BASE_IMAGE_TOOL
from lab.base.text import visible
from lab.base.threads import in_background
from lab.cluster.placement.plan import Plan
from lab.cluster.project import DEFAULT_CLUSTER

if TYPE_CHECKING:
    from lab.backends.checks import Host


class ComposeBackend(ComposePlanner, Backend):
    """Containers of `docker compose`."""

    def __init__(self) -> None:
        super().__init__()
        self._engine = Engine()

    def task_path(self, path: Path, root: Path) -> str:
        """Return the path in a container; see `Backend`."""
        data = (root / "data").resolve()  # as the compose file mounts it
        if not path.is_relative_to(data):
            raise InputError(
                f"--data_dir: {path} is not in {data}, and containers see no other directory",
                "move it there, or use --backend local",
            )
        return str(Path("/lab/data") / path.relative_to(data))

    def unavailable_reason(self) -> str | None:
        """Why there is no engine with compose here, with a hint; None if there is one."""
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
        yield from super().checks(host)
        yield Check("engine", lambda: check_engine(read_engine()))

    def gpu_checks(self) -> Iterator[Check]:
        """Yield the check of the container toolkit; see `Backend`."""
        yield Check("container toolkit", lambda: check_toolkit(read_engine()))

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """Why the plan's image is missing and cannot be built, with a hint; None if it is usable.

        An image with another version of lab's code counts as missing.

        Raises:
            LabError: The engine does not answer, or the user named an image with another version.
        """
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
        with image_builder(self._engine, plan, root, self.options) as builder:
            return image_digest(self._engine, builder.image.name) is None

    def projects(self) -> set[str]:
        """Names of all environments that have a container, network or volume."""
        return projects(self._engine)

    def find_any(self, project: str) -> ComposeEnvironment | None:
        """The environment of this name: up, stopped, or only its volume; None if there is none."""
        environment = ComposeEnvironment(self._engine, project)
        exists = environment.containers or list_resources(self._engine, project)
        return environment if exists else None

    def boot(self, plan: Plan, *, root: Path) -> ComposeBoot:
        """Return the steps of a boot; see `Backend`."""
        return ComposeBoot(plan, root, self._engine, self.options)


@dataclass(eq=False)
class ComposeBoot(Boot[ComposeEnvironment]):
    """The steps that let compose start the containers, and wait until all are healthy.

    Attributes:
        engine: The engine.
        own: The backend's own options.
    """

    backend = COMPOSE
    engine: Engine
    own: Values
    _before: frozenset[str] = NO_RESOURCES

    def prepare(self) -> None:
        """Refuse an environment of the same name from another config or directory."""
        plan, root = self.plan, self.root
        infos = ComposeEnvironment(self.engine, plan.name).containers
        tasks = [info for info in infos if info.task]
        roots = [info.root for info in tasks or infos if not is_same_folder(info.root, root)]
        if any(info.cluster_sha256 != plan.cluster_sha256 for info in infos):
            origin = "another config"
        elif roots:
            origin = f"another directory, {visible(roots[0])}"
        else:
            self._before = list_resources(self.engine, plan.name)
            return
        raise LabError(
            f"environment {plan.name} exists already, booted from {origin}",
            f"remove it with `lab down {plan.name}`, or set another `name:` in the config",
        )

    def holder(self) -> Holder | None:
        """Return the holder of the plan's GPUs, if the engine runs on this host."""
        if not self.plan.has_gpus or not self.engine.is_local():
            return None
        return holder_of(self.plan, backend=self.backend, where=self.engine.id())

    def options(self) -> Values:
        """Return the options of the compose file. Podman silently ignores `driver: nvidia`."""
        if self.plan.has_gpus and self.engine.is_podman():
            return {**self.own, "gpus-by": "cdi"}
        return self.own

    def text(self) -> str:
        """Return the compose file; its paths are relative to the project's directory."""
        root = self.root
        return render(self.plan, self.options(), Rendering.at(root, root / DEFAULT_CLUSTER, root))

    def start_containers(self, compose: Compose) -> None:
        """Start all containers.

        Raises:
            LabError: The engine or compose refuses.
        """
        compose.up()

    def start(self, lock: int | None, hold: Handover) -> ComposeEnvironment:
        """Let compose start the containers, and wait until all are healthy; see `Boot`."""
        del hold
        plan, engine = self.plan, self.engine
        file = write_compose_file(plan.name, self.text())
        compose = Compose(plan.name, file, self.root, lock)
        ImageBuilder.of(engine, plan, compose).ensure()
        self.start_containers(compose)
        environment = ComposeEnvironment(engine, plan.name)
        # First, because a task without its network becomes unhealthy after some seconds.
        restart_detached_tasks(engine, environment.inspect())
        wait_until_up(engine, environment.inspect)
        environment.block_host()
        return environment

    def undo(self) -> None:
        """Remove what a failed boot added. An error here must not hide the boot's error."""
        project = self.plan.name
        try:
            remove(self.engine, project, keep=self._before)
        except LabError as error:
            LOG.warning(f"{project} is not fully removed: {error}; run `lab down {project}`")
        if not self._before:
            remove_compose_file(project)
