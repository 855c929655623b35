"""The errors that commands print for the user, and the findings of checks.

Each error has one line, what is wrong and how to fix it, and the exit code of the command. Any
other exception is a defect of lab.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from lab.base.text import bounded

Status = TypeVar("Status", bound=StrEnum)


class LabError(Exception):
    """An error that the user can fix.

    Attributes:
        what: What is wrong, and where, without a full stop at the end. Long texts are cut.
        fix: How to fix it, as an instruction; or "".
        exit_code: The exit code of the command: 1.
    """

    exit_code = 1

    def __init__(self, what: str, fix: str = "") -> None:
        what, fix = bounded(what), bounded(fix)
        super().__init__(f"{what}; {fix}" if fix else what)
        self.what = what
        self.fix = fix


class InputError(LabError):
    """Wrong usage or input: exit code 2."""

    exit_code = 2


class ConfigError(InputError):
    """An invalid config; the error lists all of its faults.

    Attributes:
        problems: One line for each fault: `cluster.yaml:12:5: nodes.tf2.gpus: …`.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("")
        self.problems = [bounded(problem) for problem in problems]
        self.what = "\n".join(self.problems)
        self.args = (self.what,)


class InterruptError(LabError):
    """The user interrupted the command: exit code 130."""

    exit_code = 130


class InconclusiveError(LabError):
    """A result is inconclusive: exit code 3."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Finding(Generic[Status]):
    """The result of a check.

    Attributes:
        status: The result; each kind of check has terms of its own.
        what: What it found, in one line; "" if the status says all.
        fix: How to fix it, as an instruction; "" if there is nothing to fix.
        where: What was checked: `GPU 3`, `engine`, `worker-0`.
    """

    status: Status
    what: str = ""
    fix: str = ""
    where: str = ""

    def __str__(self) -> str:
        what = f" ({self.what})" if self.what else ""
        fix = f"; {self.fix}" if self.fix else ""
        return f"{self.where}: {self.status}{what}{fix}"

    def as_json(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        return asdict(self)
