"""`Backend`, the base class of all backends; `Environment` is its neighbour.

A backend boots an *environment*: one agent for each task of the plan. The agents wait for requests.
The client and the agents exchange files on the run volume only (`lab.volume`). The files are
the same on every backend.

A new backend is a package with two classes, derived from `Backend` and `Environment`. They define
the abstract methods. The table in `lab.backends.names` lists it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.backends.environment import Check, Environment, no_check
from lab.backends.names import capabilities
from lab.backends.planner import Planner
from lab.doctor import model as doctor

if TYPE_CHECKING:
    # Commands such as `lab render` need only the names of the backends.
    from lab.backends.boot import Boot
    from lab.doctor.host import Host
    from lab.placement.plan import Plan

_CHECK_S: Final = 40.0
"""Time limit of a check in seconds; the registry of the base image may be slow."""


class Backend(Planner, ABC):
    """Boots and finds environments; each backend's class derives from this one."""

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

    @abstractmethod
    def unavailable_reason(self) -> str | None:
        """Why this backend cannot be used here, with a hint; None if it can."""

    def checks(self, host: Host) -> Iterable[doctor.Check]:
        """Yield the checks of `lab doctor`: can the backend be used here, and is its image here."""
        yield doctor.Check("available", self._check_available, _CHECK_S)
        if host.plan is not None:
            name = "image" if capabilities(self.name).containers else "Python"
            yield doctor.Check(name, partial(self._check_image, host.plan), _CHECK_S)

    def _check_available(self) -> doctor.Outcome:
        reason = self.unavailable_reason()
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

    @abstractmethod
    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """Why this plan has no image here, with a hint; None if it can be booted."""

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
        check: Check = no_check,
        share: bool = False,
    ) -> Environment:
        """Boot an environment and wait until every agent runs.

        If the boot fails, it removes what it started before it raises the error.

        Args:
            plan: The plan.
            root: The project's directory, with `scripts/`, `data/` and `Dockerfile.gpu`.
            check: Called when every agent runs. If it raises, the boot fails.
            share: Whether another environment may hold the same GPUs.

        Raises:
            LabError: The boot failed, or another environment holds one of the GPUs. Nothing is
                left.
        """
        from lab.backends.boot import boot  # noqa: PLC0415  (few commands boot)

        environment: Environment = boot(self.boot(plan, root=root.absolute()), check, share=share)
        return environment

    def still_runs(self, project: str, where: str) -> bool | None:
        """Whether an environment runs although no process locks its entry in the GPU record.

        Args:
            project: The environment's name.
            where: See `lab.backends.gpu_record.Holder`.

        Returns:
            None if that is unknown.
        """
        del project, where
        return False

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
