"""What the doctor says: findings, and what they come to together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Need(StrEnum):
    """What a thing is needed for."""

    EVERYTHING = "everything"
    LOCAL = "local"
    COMPOSE = "compose"
    GPUS = "gpus"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its outcome.

    Attributes:
        area: The heading under which it is shown.
        name: What was looked at.
        verdict: How it is.
        what: What was found, one line.
        mend: How to mend it, with the command where there is one; empty where nothing is wrong.
        needed_for: What cannot do without it.
        blocks: Why what it is needed for cannot be used, in a few words; empty where it can.
    """

    area: str
    name: str
    verdict: Verdict
    what: str
    mend: str = ""
    needed_for: Need = Need.EVERYTHING
    blocks: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings together."""

    findings: Sequence[Finding]

    def obstacle(self, need: Need) -> str | None:
        """Why something cannot be used here, in a few words; None where it can."""
        for finding in self.findings:
            if finding.blocks and finding.needed_for in {need, Need.EVERYTHING}:
                return finding.blocks
        if need is Need.GPUS and not (self.usable(Need.LOCAL) or self.usable(Need.COMPOSE)):
            return "no backend"
        return None

    def usable(self, need: Need) -> bool:
        """Whether nothing stands in the way of it."""
        return self.obstacle(need) is None

    @property
    def ok(self) -> bool:
        """Whether training is possible here, and nothing is broken that the description asks for.

        A backend that cannot be used does no harm while the other one can. What is needed for
        everything must hold; GPUs fail only where the description asks for them and the box has
        some that do not answer.
        """
        return not self.broken() and (self.usable(Need.LOCAL) or self.usable(Need.COMPOSE))

    def broken(self) -> list[Finding]:
        """What fails and must not, whichever backend is used."""
        needed = {Need.EVERYTHING, Need.GPUS}
        return [
            each
            for each in self.findings
            if each.verdict is Verdict.FAILED and each.needed_for in needed
        ]

    def sentence(self) -> str:
        """`local: yes; compose: yes; GPUs: no (no driver)`."""
        words = []
        for need, shown in ((Need.LOCAL, "local"), (Need.COMPOSE, "compose"), (Need.GPUS, "GPUs")):
            obstacle = self.obstacle(need)
            words.append(f"{shown}: yes" if obstacle is None else f"{shown}: no ({obstacle})")
        return "; ".join(words)

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "usable": {
                need.value: self.usable(need) for need in (Need.LOCAL, Need.COMPOSE, Need.GPUS)
            },
            "ok": self.ok,
        }
