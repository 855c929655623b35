"""The boot of an environment of containers."""

from __future__ import annotations

from dataclasses import dataclass

from lab.backends.boot import Boot
from lab.backends.compose.cleanup import NO_RESOURCES, list_resources, remove
from lab.backends.compose.cli import Compose, remove_compose_file, write_compose_file
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.image_build import ImageBuilder
from lab.backends.compose.readiness import restart_detached_tasks, wait_until_up
from lab.backends.compose.render import render
from lab.backends.engine.client import Engine
from lab.backends.gpu_record import Handover, Holder, holder_of
from lab.backends.names import COMPOSE
from lab.backends.options import Values
from lab.backends.rendered_file import Rendering
from lab.backends.selection import is_same_folder
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.cluster.project import DEFAULT_CLUSTER


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
            origin = f"another directory, {roots[0]}"
        else:
            self._before = list_resources(self.engine, plan.name)
            return
        raise LabError(
            f"environment {plan.name} already exists, booted from {origin}",
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
