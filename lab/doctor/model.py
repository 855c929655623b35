"""The outcome of a check, and the report of all checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lab.finding import Finding


class Status(StrEnum):
    """The status of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Need(StrEnum):
    """The purpose that needs a check to pass."""

    EVERYTHING = "everything"
    LOCAL = "local"
    COMPOSE = "compose"
    GPUS = "gpus"


@dataclass(frozen=True, slots=True)
class Outcome(Finding[Status]):
    """The outcome of a check. The table of checks completes `where`, `area` and `needed_for`.

    Attributes:
        blocks: A short reason why the purpose that needs the check is not possible; "" if it is.
        stops: Whether to skip the checks that need this one.
        area: The heading of the check in the report.
        needed_for: The purpose that needs the check to pass.
    """

    blocks: str = ""
    stops: bool = False
    area: str = ""
    needed_for: Need = Need.EVERYTHING


def ok(what: str) -> Outcome:
    """Return the outcome of a check that passed."""
    return Outcome(Status.OK, what)


def warning(what: str, fix: str = "", blocks: str = "", *, stops: bool = False) -> Outcome:
    """Return a warning: something optional is missing, or may cause an error later."""
    return Outcome(Status.WARNING, what, fix, blocks=blocks, stops=stops)


def failed(what: str, fix: str, blocks: str, *, stops: bool = False) -> Outcome:
    """Return a failure: something is broken, or a required thing is missing."""
    return Outcome(Status.FAILED, what, fix, blocks=blocks, stops=stops)


def skipped(what: str, *, stops: bool = False) -> Outcome:
    """Return the outcome of a check that does not apply."""
    return Outcome(Status.SKIPPED, what, stops=stops)


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of all checks."""

    findings: Sequence[Outcome]

    def obstacle(self, need: Need) -> str | None:
        """Return a short reason why a purpose is not possible on this host; None if it is."""
        for finding in self.findings:
            if finding.blocks and finding.needed_for in {need, Need.EVERYTHING}:
                return finding.blocks
        if need is Need.GPUS and not (self.usable(Need.LOCAL) or self.usable(Need.COMPOSE)):
            return "no backend"
        return None

    def usable(self, need: Need) -> bool:
        """Whether a purpose is possible on this host."""
        return self.obstacle(need) is None

    @property
    def ok(self) -> bool:
        """Whether this host can train, and nothing that the config needs is broken.

        One usable backend is enough. Checks that everything needs must pass. GPUs fail only if the
        config asks for GPUs, and GPUs of the host do not answer.
        """
        return not self.broken() and (self.usable(Need.LOCAL) or self.usable(Need.COMPOSE))

    def broken(self) -> list[Outcome]:
        """Return the failures that matter for every backend."""
        needed = {Need.EVERYTHING, Need.GPUS}
        return [
            each
            for each in self.findings
            if each.status is Status.FAILED and each.needed_for in needed
        ]

    def sentence(self) -> str:
        """Return the summary: `local: yes; compose: yes; GPUs: no (no driver)`."""
        parts = []
        for need, shown in ((Need.LOCAL, "local"), (Need.COMPOSE, "compose"), (Need.GPUS, "GPUs")):
            obstacle = self.obstacle(need)
            parts.append(f"{shown}: yes" if obstacle is None else f"{shown}: no ({obstacle})")
        return "; ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        return {
            "findings": [finding.as_json() for finding in self.findings],
            "usable": {
                need.value: self.usable(need) for need in (Need.LOCAL, Need.COMPOSE, Need.GPUS)
            },
            "ok": self.ok,
        }
