"""The policy of a run when one of its tasks fails."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from lab.task.protocol.states import State, run_state

if TYPE_CHECKING:
    from lab.task.protocol import RunSpec


class OnFailure(StrEnum):
    """The reaction to a failed task: end the run, restart the task, or continue without it."""

    FAIL = "fail"
    RESTART = "restart"
    CONTINUE = "continue"


RESTARTS: Final = 3
"""The default maximum number of restarts of each task."""

_RESTART: Final = re.compile(r"restart:([1-9][0-9]{0,2})")


@dataclass(frozen=True, slots=True)
class Policy:
    """What happens to a run when a task fails.

    Attributes:
        on_failure: The reaction.
        restarts: The maximum number of restarts of each task; 0 without the reaction `restart`.
    """

    on_failure: OnFailure = OnFailure.FAIL
    restarts: int = 0

    def __str__(self) -> str:
        restarts = f":{self.restarts}" if self.on_failure is OnFailure.RESTART else ""
        return f"{self.on_failure.value}{restarts}"


FAIL: Final = Policy()
"""The default policy."""


def parse_policy(text: str) -> Policy:
    """Parse `fail`, `restart`, `restart:5` or `continue`.

    Raises:
        ValueError: The text is none of these.
    """
    if found := _RESTART.fullmatch(text):
        return Policy(OnFailure.RESTART, int(found[1]))
    if text == OnFailure.RESTART:
        return Policy(OnFailure.RESTART, RESTARTS)
    if text in {OnFailure.FAIL, OnFailure.CONTINUE}:
        return Policy(OnFailure(text))
    raise ValueError("fail, restart, restart:N (N from 1 to 999), or continue")


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
