"""`Backend`, the base class of all backends; `Environment` is its neighbour.

A backend boots an *environment*: one agent for each task of the plan. The agents wait for requests.
The client and the agents exchange files on the run volume only (`lab.protocol.volume`). The files
are the same on every backend.

A new backend is two classes, derived from `Backend` and `Environment`, which define the abstract
methods, and an entry point that names its `Capabilities`. docs/reference/plugins.md lists what it
may import, and `lab.testing.backend` has the tests that it passes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lab.backends import checks as doctor
from lab.backends.names import BUILT_IN, capabilities, targets
from lab.backends.options import Values, defaults_of
from lab.base.errors import InputError, LabError
from lab.base.shipped import check_extra

if TYPE_CHECKING:
    # Commands such as `lab render` need only the names of the backends.
    from lab.backends.boot import Boot
    from lab.backends.checks import Host
    from lab.backends.environment import Check, Environment
    from lab.backends.recorded import Recorded
    from lab.backends.rendered_file import Rendering
    from lab.cluster.config import Cluster
    from lab.cluster.placement.place import Placed
    from lab.cluster.placement.plan import Plan, PlannedRun

_CHECK_S: Final = 40.0
"""Time limit of a check in seconds; the registry of the base image may be slow."""


class Backend(ABC):
    """Places configs, renders plans, and boots and finds environments.

    Each backend's class derives from this one. `lab render` imports the class, too: its methods
    import what only a boot needs.

    Attributes:
        name: The backend's name, as `lab.backends.names` lists it.
        options: The values of all the backend's own options.
    """

    name: str

    def __init__(self, own: Values = MappingProxyType({})) -> None:
        """Create a backend.

        Args:
            own: The values of its own options that differ from the defaults.
        """
        self.options: Values = {**defaults_of(capabilities(self.name).options), **own}

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
        from lab.cluster.placement.place import place_here  # noqa: PLC0415  (imports pydantic)

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
            f"backend {self.name} has no file to render", f"use --target {' or '.join(targets())}"
        )

    def render_notices(self, run: PlannedRun | None) -> Sequence[str]:
        """One line for each feature of a run that a rendered file does not support."""
        return ()

    def start_hint(self, file: Path) -> str:
        """Return how to boot a rendered file, as an instruction; "" without a file."""
        return ""

    def task_path(self, path: Path, root: Path) -> str:
        """Return the path at which tasks see a file or directory of this host.

        Args:
            path: The absolute path here.
            root: The project's directory.

        Raises:
            InputError: Tasks cannot see it.
        """
        del root
        return str(path)

    def unavailable_reason(self) -> str | None:
        """Why this backend cannot be used here, with a hint; None if it can.

        By default it needs only its extra, if it has one.
        """
        if extra := capabilities(self.name).extra:
            try:
                check_extra(extra)
            except LabError as error:
                return str(error)
        return None

    def obstacle(self) -> str | None:
        """Return `unavailable_reason`, also if that of another package raises an error."""
        try:
            return self.unavailable_reason()
        except Exception as error:
            if self.name in BUILT_IN or isinstance(error, LabError):
                raise
            return f"{type(error).__name__}: {error}; update its package"

    def checks(self, host: Host) -> Iterable[doctor.Check]:
        """Yield the checks of `lab doctor`: can the backend be used here, and is its image here."""
        yield doctor.Check("available", self._check_available, _CHECK_S)
        if host.plan is not None:
            name = "image" if capabilities(self.name).containers else "Python"
            yield doctor.Check(name, partial(self._check_image, host.plan), _CHECK_S)

    def _check_available(self) -> doctor.Outcome:
        reason = self.obstacle()
        if reason is None:
            return doctor.ok("can be used")
        problem, _, fix = reason.partition("; ")
        # A host without an engine may be faulty; one without a queue is a usual host.
        severity = doctor.skipped if capabilities(self.name).queued else doctor.failed
        return severity(problem, fix, stops=True)

    def _check_image(self, plan: Plan) -> doctor.Outcome:
        root = Path.cwd()
        if (reason := self.missing_image(plan, root=root)) is not None:
            problem, _, fix = reason.partition("; ")
            return doctor.failed(problem, fix)
        return doctor.ok("built by the next run" if self.must_build(plan, root=root) else "here")

    def gpu_checks(self) -> Iterable[doctor.Check]:
        """Yield what `lab doctor` checks on a host whose GPUs answer, if tasks can have them."""
        return ()

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """Why this plan has no image here, with a hint; None if it can be booted."""
        return None

    def must_build(self, plan: Plan, *, root: Path) -> bool:
        """Whether a boot of this plan would first build an image, which takes minutes."""
        return False

    def notices(self, plan: Plan) -> Sequence[str]:
        """One line for each feature of the plan that this backend does not support here."""
        return ()

    @abstractmethod
    def boot(self, plan: Plan, *, root: Path) -> Boot[Any]:
        """Return the steps of a boot, for `up`.

        Args:
            plan: The plan.
            root: The project's directory, an absolute path.
        """

    def up(
        self,
        plan: Plan,
        *,
        root: Path,
        check: Check | None = None,
        share: bool = False,
    ) -> Environment:
        """Boot an environment and wait until every agent runs.

        If the boot fails, it removes what it started before it raises the error.

        Args:
            plan: The plan.
            root: The project's directory, with `scripts/`, `data/` and `Dockerfile.gpu`.
            check: Called when every agent runs, if any. If it raises, the boot fails.
            share: Whether another environment may hold the same GPUs.

        Raises:
            LabError: The boot failed, or another environment holds one of the GPUs. Nothing is
                left.
        """
        from lab.backends.boot import boot  # noqa: PLC0415  (few commands boot)

        environment: Environment = boot(self.boot(plan, root=root.absolute()), check, share=share)
        return environment

    @abstractmethod
    def projects(self) -> Collection[str]:
        """Names of all environments that have any parts on this backend."""

    @abstractmethod
    def find_any(self, project: str) -> Environment | None:
        """Find an environment that is up, stopped, or only a run volume; None if there is none."""

    def find(self, project: str) -> Environment | None:
        """The environment of this name if it is up; the current directory does not matter."""
        environment = self.find_any(project)
        return environment if environment is not None and environment.is_up else None

    def list_environments(self) -> list[Environment]:
        """All environments of this backend, also half booted and stopped ones."""
        environments = (self.find_any(project) for project in sorted(self.projects()))
        return [environment for environment in environments if environment is not None]

    def all(self) -> list[Environment]:
        """All environments of this backend that are up."""
        return [environment for environment in self.list_environments() if environment.is_up]


class RecordedBackend(Backend):
    """A backend whose environments have a record in a directory of this user."""

    @abstractmethod
    def environments(self) -> type[Recorded[Any]]:
        """Return the class of its environments; few commands import it."""

    def projects(self) -> list[str]:
        """Names of all environments that have a record."""
        return [place.directory.name for place in self.environments().state_dirs.all()]

    def find_any(self, project: str) -> Environment | None:
        """The environment of this name: up, waiting, or stopped; None without a record.

        Raises:
            LabError: Its record cannot be read.
        """
        if project not in self.projects():
            return None
        environments = self.environments()
        state_dir = environments.state_dirs.of(project)
        record = state_dir.read()
        return None if record is None else environments(state_dir, record)
