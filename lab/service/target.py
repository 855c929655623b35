"""The target of a run: a backend, and its environment if one is already up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lab.backends import Backend, Environment
from lab.backends.gpu_verification import boot
from lab.backends.selection import check_compatible, choose
from lab.backends.state import Busy
from lab.errors import Notify
from lab.placement.plan import Plan
from lab.project import Project
from lab.run.recovery import collect_orphans
from lab.run.run_queue import turn
from lab.service.planning import PlanResult

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """The backend and the environment of a run.

    Attributes:
        backend: The backend.
        plan: The placement.
        root: The project's directory.
        found: The environment that is already up, and stays up; None: one is booted.
        share: Whether a booted environment may use GPUs that another environment uses.
    """

    backend: Backend
    plan: Plan
    root: Path
    found: Environment | None
    share: bool = False

    def boot(self, defer: Callable[[], None], notify: Notify) -> Environment:
        """Boot an environment and verify that its tasks have the GPUs of the plan.

        Args:
            defer: Called when the environment is up; from then on the caller must remove it.
            notify: Receives progress.

        Raises:
            LabError: The environment cannot be booted, or differs from the plan; it is removed.
        """
        return boot(
            self.backend,
            self.plan,
            root=self.root,
            notify=notify,
            share=self.share,
            then=lambda _environment: defer(),
        )


def find_target(
    name: str,
    planned: PlanResult,
    project: Project,
    known: Sequence[Backend],
    runs_dir: Path,
    *,
    notify: Notify,
    warn: Notify | None = None,
    strict: bool = False,
    share: bool = False,
) -> Target:
    """Choose the backend, and check whether its environment can be used; start nothing.

    If no environment is up, report the warnings of the plan and the backend, and collect the runs
    of an earlier one.

    Args:
        name: The backend's name, or `auto`.
        planned: The placement.
        project: The project.
        known: All backends.
        runs_dir: The run store that receives the runs of a stopped environment.
        notify: Receives the chosen backend, with the reason, and notices.
        warn: Receives warnings; None: `notify` receives them.
        strict: Refuse a plan with less than the config asks for, or with a GPU in use.
        share: Whether a booted environment may use GPUs that another environment uses.

    Raises:
        LabError: No backend can be used, another environment has this name, or `strict` refuses.
    """
    plan = planned.plan
    chosen = choose(name, plan, project.root, known, notify)
    if chosen.environment is not None:
        check_compatible(chosen.environment, plan, project.config_name, project.root)
    else:
        planned.report_warnings(notify, warn=warn, strict=strict)
        for notice in chosen.backend.notices(plan):
            notify(notice)
        collect_orphans(chosen.backend, plan.name, runs_dir, notify)
    return Target(chosen.backend, plan, project.root, chosen.environment, share)


def run_in_turn(
    target: Target,
    find: Callable[[], Target],
    once: Callable[[Target, Notify], T],
    *,
    wait: bool,
    notify: Notify,
) -> T:
    """Execute a run when no other run of the same environment is ahead or under way.

    Args:
        target: The target.
        find: Finds the target again after waiting: the environment may have changed.
        once: Executes the run; passes the run's id to its second argument before the start.
        wait: Wait for the runs that are ahead; otherwise they are an error.
        notify: Receives the position in the queue, at every change.

    Raises:
        Busy: Another run is ahead or under way, and `wait` is not set.
        LabError: `once` raised it.
    """
    with turn(target.backend, target.plan.name, wait=wait, notify=notify) as mine:
        while True:
            try:
                return once(find() if mine.waited else target, mine.begin)
            except Busy:
                # The other run has no ticket in this queue: another user or command submitted it.
                if not wait:
                    raise
                mine.wait()
                mine.waited = True
