"""How a run has ended, decided from the ends of its tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from lab.experiments.policy import OnFailure
from lab.volume.run_spec import RunSpec
from lab.volume.states import State, run_state


class EndedTask(Protocol):
    """The part of a task's status that the policy needs."""

    @property
    def task(self) -> str:
        """`worker-0`."""

    @property
    def state(self) -> State:
        """The final state."""

    @property
    def ended_unix(self) -> float | None:
        """The time of the end, in seconds since the epoch."""


class RequestedRun(Protocol):
    """The part of a run's request that the policy needs."""

    @property
    def spec(self) -> RunSpec:
        """The user's specification."""

    @property
    def chief(self) -> str | None:
        """The task that initializes and saves, if any."""


def is_optional(run: RequestedRun, task: str) -> bool:
    """Whether the run continues after this task has failed."""
    free = not run.spec.is_service(task) and task != run.chief
    return free and run.spec.on_failure is OnFailure.CONTINUE


def outcome(run: RequestedRun, statuses: Mapping[str, EndedTask]) -> tuple[State, list[str]]:
    """Return the final state of a run whose tasks have all ended, and the tasks that caused it.

    The worst final state of a task is that of the run. A cancelled service does not count, nor does
    an optional task.

    Returns:
        The state, and the tasks with that state in the order of their ends; no tasks for success.
    """
    counted = [
        status for status in statuses.values() if not _harmless(run, status.task, status.state)
    ]
    state = run_state(status.state for status in counted)
    if state is State.SUCCEEDED:
        return state, []
    failed = [status for status in counted if status.state is state]
    return state, [status.task for status in _first_to_end(failed)]


def _harmless(run: RequestedRun, task: str, state: State) -> bool:
    if state is State.CANCELLED and run.spec.is_service(task):
        return True
    return state is not State.SUCCEEDED and is_optional(run, task)


def _first_to_end(statuses: Iterable[EndedTask]) -> list[EndedTask]:
    return sorted(
        statuses,
        key=lambda status: math.inf if status.ended_unix is None else status.ended_unix,
    )
