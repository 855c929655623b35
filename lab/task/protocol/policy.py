"""What becomes of a run when one of its tasks fails."""

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
    """What the others do when a task fails."""

    FAIL = "fail"
    RESTART = "restart"
    CONTINUE = "continue"


RESTARTS: Final = 3
"""How often each task is started again at most, where nobody says otherwise."""

_RESTART: Final = re.compile(r"restart:([1-9][0-9]{0,2})")


@dataclass(frozen=True, slots=True)
class Policy:
    """What becomes of a run when a task fails.

    Attributes:
        on_failure: What the others do.
        restarts: How often each task is started again at most; 0 unless tasks are.
    """

    on_failure: OnFailure = OnFailure.FAIL
    restarts: int = 0

    def __str__(self) -> str:
        restarts = f":{self.restarts}" if self.on_failure is OnFailure.RESTART else ""
        return f"{self.on_failure.value}{restarts}"


FAIL: Final = Policy()
"""What holds where nothing is said."""


def parse_policy(text: str) -> Policy:
    """Read `fail`, `restart`, `restart:5` or `continue`.

    Raises:
        ValueError: It is none of them.
    """
    if found := _RESTART.fullmatch(text):
        return Policy(OnFailure.RESTART, int(found[1]))
    if text == OnFailure.RESTART:
        return Policy(OnFailure.RESTART, RESTARTS)
    if text in {OnFailure.FAIL, OnFailure.CONTINUE}:
        return Policy(OnFailure(text))
    raise ValueError("fail, restart, restart:N (N from 1 to 999), or continue")


class Ended(Protocol):
    """How a task has ended, as far as it matters here."""

    @property
    def task(self) -> str:
        """`worker-0`."""

    @property
    def state(self) -> State:
        """One of the ends."""

    @property
    def ended_unix(self) -> float | None:
        """When, in seconds since the epoch."""


class Asked(Protocol):
    """What was asked for, as far as it matters here."""

    @property
    def spec(self) -> RunSpec:
        """The user's specification."""

    @property
    def chief(self) -> str | None:
        """The task that initializes and saves, if any."""


def is_optional(requested: Asked, task: str) -> bool:
    """Whether the run goes on when this task has failed."""
    free = not requested.spec.is_service(task) and task != requested.chief
    return free and requested.spec.on_failure is OnFailure.CONTINUE


def outcome(requested: Asked, statuses: Mapping[str, Ended]) -> tuple[State, list[str]]:
    """How a run has ended whose tasks all have, and which of them decided that.

    The worst end of a task is the run's. A service that was cancelled harms nobody, and neither
    does any end of a task that the run can do without.

    Returns:
        The state, and the tasks that ended so, the first to end first; none where it succeeded.
    """
    counted = [
        status
        for status in statuses.values()
        if not _harmless(requested, status.task, status.state)
    ]
    state = run_state(status.state for status in counted)
    if state is State.SUCCEEDED:
        return state, []
    failed = [status for status in counted if status.state is state]
    return state, [status.task for status in _first_to_end(failed)]


def _harmless(requested: Asked, task: str, state: State) -> bool:
    if state is State.CANCELLED and requested.spec.is_service(task):
        return True
    return state is not State.SUCCEEDED and is_optional(requested, task)


def _first_to_end(statuses: Iterable[Ended]) -> list[Ended]:
    return sorted(
        statuses,
        key=lambda status: math.inf if status.ended_unix is None else status.ended_unix,
    )
