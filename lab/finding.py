"""A finding: what a check found, where, and how to fix it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

Status = TypeVar("Status", bound=StrEnum)


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
