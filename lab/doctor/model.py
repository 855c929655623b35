"""The parts of a check, and what all of them add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Need(StrEnum):
    """What a checked thing is needed for."""

    EVERYTHING = "everything"
    LOCAL = "local"
    COMPOSE = "compose"
    GPUS = "gpus"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check has found.

    Attributes:
        status: How it ended.
        what: What was found, one line.
        fix: How to fix it, with the command where there is one; empty where nothing is wrong.
        blocks: Why what needs it cannot be used, in a few words; empty where it can.
        stops: Whether the checks that need this one cannot be made.
    """

    status: Status
    what: str
    fix: str = ""
    blocks: str = ""
    stops: bool = False


def ok(what: str) -> Outcome:
    """All is as it should be."""
    return Outcome(Status.OK, what)


def warning(what: str, fix: str = "", blocks: str = "", *, stops: bool = False) -> Outcome:
    """Something optional is missing, or may cause trouble later."""
    return Outcome(Status.WARNING, what, fix, blocks, stops)


def failed(what: str, fix: str, blocks: str, *, stops: bool = False) -> Outcome:
    """Something is broken, or nothing that needs it works without it."""
    return Outcome(Status.FAILED, what, fix, blocks, stops)


def skipped(what: str, *, stops: bool = False) -> Outcome:
    """There is nothing to check."""
    return Outcome(Status.SKIPPED, what, stops=stops)


@dataclass(frozen=True, slots=True)
class Finding:
    """An outcome, with the check that it belongs to.

    Attributes:
        area: The heading under which it is shown.
        name: What was checked.
        needed_for: What cannot do without it.
        outcome: What was found.
    """

    area: str
    name: str
    needed_for: Need
    outcome: Outcome

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints of it."""
        return {
            "area": self.area,
            "name": self.name,
            "verdict": self.outcome.status,
            "what": self.outcome.what,
            "mend": self.outcome.fix,
            "needed_for": self.needed_for,
            "blocks": self.outcome.blocks,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All findings together."""

    findings: Sequence[Finding]

    def obstacle(self, need: Need) -> str | None:
        """Why something cannot be used here, in a few words; None where it can."""
        for finding in self.findings:
            if finding.outcome.blocks and finding.needed_for in {need, Need.EVERYTHING}:
                return finding.outcome.blocks
        if need is Need.GPUS and not (self.usable(Need.LOCAL) or self.usable(Need.COMPOSE)):
            return "no backend"
        return None

    def usable(self, need: Need) -> bool:
        """Whether nothing prevents its use."""
        return self.obstacle(need) is None

    @property
    def ok(self) -> bool:
        """Whether training is possible here, and nothing is broken that the config asks for.

        A backend that cannot be used does no harm while the other one can. What is needed for
        everything must work. GPUs fail only where the config asks for them and the host has some
        that do not answer.
        """
        return not self.broken() and (self.usable(Need.LOCAL) or self.usable(Need.COMPOSE))

    def broken(self) -> list[Finding]:
        """What fails and must not, whichever backend is used."""
        needed = {Need.EVERYTHING, Need.GPUS}
        return [
            each
            for each in self.findings
            if each.outcome.status is Status.FAILED and each.needed_for in needed
        ]

    def sentence(self) -> str:
        """`local: yes; compose: yes; GPUs: no (no driver)`."""
        parts = []
        for need, shown in ((Need.LOCAL, "local"), (Need.COMPOSE, "compose"), (Need.GPUS, "GPUs")):
            obstacle = self.obstacle(need)
            parts.append(f"{shown}: yes" if obstacle is None else f"{shown}: no ({obstacle})")
        return "; ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "findings": [finding.as_json() for finding in self.findings],
            "usable": {
                need.value: self.usable(need) for need in (Need.LOCAL, Need.COMPOSE, Need.GPUS)
            },
            "ok": self.ok,
        }


def count(number: int, thing: str) -> str:
    """`1 task`, `3 tasks`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
