"""A check of `lab doctor`, what it finds, and what backends know of the host for theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from lab.base.errors import Finding, LabError
from lab.base.text import short
from lab.base.threads import in_background

if TYPE_CHECKING:
    from lab.cluster.gpu import Inventory
    from lab.cluster.placement.plan import Plan

LIMIT_S: Final = 10.0
"""Time limit of a check in seconds. Most are fast, but a file server or an engine may hang."""


class Status(StrEnum):
    """The status of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Outcome(Finding[Status]):
    """The outcome of a check; `where` is the name of the check.

    Attributes:
        stops: Whether the area cannot be used, and its later checks are left out.
        area: What the check belongs to: the host, its GPUs or a backend.
    """

    stops: bool = False
    area: str = ""

    @property
    def blocks(self) -> bool:
        """Whether the area cannot be used."""
        return self.stops or self.status is Status.FAILED


def ok(what: str) -> Outcome:
    """Return the outcome of a check that passed."""
    return Outcome(Status.OK, what)


def warning(what: str, fix: str, *, stops: bool = False) -> Outcome:
    """Return a warning: something is missing, or may cause an error later."""
    return Outcome(Status.WARNING, what, fix, stops=stops)


def failed(what: str, fix: str, *, stops: bool = False) -> Outcome:
    """Return a failure: the area cannot be used."""
    return Outcome(Status.FAILED, what, fix, stops=stops)


def skipped(what: str, fix: str = "", *, stops: bool = False) -> Outcome:
    """Return the outcome of a check that does not apply to this host."""
    return Outcome(Status.SKIPPED, what, fix, stops=stops)


@dataclass(frozen=True, slots=True)
class Check:
    """A check of this host. It changes nothing.

    Attributes:
        name: Its name, unique in its area.
        examine: Returns the outcome. A `LabError` is a failure with the fix of the error.
        limit_s: Its time limit in seconds.
    """

    name: str
    examine: Callable[[], Outcome]
    limit_s: float = LIMIT_S

    def run(self) -> Outcome:
        """Return the outcome; an error or no answer in time is one, too."""
        return replace(self._outcome(), where=self.name)

    def _outcome(self) -> Outcome:
        try:
            return in_background(self.examine).result(self.limit_s)
        except LabError as error:
            return failed(error.what, error.fix, stops=True)
        except TimeoutError:
            fix = "find out what hangs: `dmesg | tail`, `mount`, or the log of the engine"
            return failed(f"no answer within {self.limit_s:g} s", fix, stops=True)
        except OSError as error:
            where = short(str(error.filename))
            return failed(f"{where}: {error.strerror}", "fix its permissions", stops=True)


@dataclass(frozen=True, slots=True)
class Host:
    """What backends need to know of this host, and of the config of this directory.

    Attributes:
        inventory: The GPUs that answer, and faults of the driver.
        plan: The config's plan, without GPUs if this host has too few; None without a valid config.
        wants_gpus: Whether the config asks for GPUs.
    """

    inventory: Inventory
    plan: Plan | None = None
    wants_gpus: bool = False
