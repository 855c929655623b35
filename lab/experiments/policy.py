"""The policy of a run when one of its tasks fails."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


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

RESTART: Final = Policy(OnFailure.RESTART, RESTARTS)
"""The default policy of programs that can continue after a restart."""


def parse_policy(text: str) -> Policy:
    """Parse `fail`, `restart`, `restart:5` or `continue`.

    Raises:
        ValueError: The text is something else.
    """
    if match := _RESTART.fullmatch(text):
        return Policy(OnFailure.RESTART, int(match[1]))
    if text == OnFailure.RESTART:
        return RESTART
    if text in {OnFailure.FAIL, OnFailure.CONTINUE}:
        return Policy(OnFailure(text))
    raise ValueError("fail, restart, restart:N (N from 1 to 999), or continue")
