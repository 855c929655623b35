"""The table of all runs: a JSON object a line, only ever appended to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Final

from tests.torture.case import NEW_FROM, Case
from tests.torture.judging import Judgement, Verdict

FAULTS: Final = "faults"
CLEAN_END: Final = "clean end"
HOSTILE: Final = "hostile"

BAD: Final = frozenset(Verdict) - {Verdict.OK, Verdict.MISSED}
_TOTALS: Final = {
    Verdict.HANG: "hangs",
    Verdict.LIE: "lies",
    Verdict.LOST_RECORDS: "with lost records",
    Verdict.SUMS: "with wrong sums",
    Verdict.ORPHAN: "with something left behind",
    Verdict.LATE: "too late",
    Verdict.MISSED: "with the fault after the end, which counts for nothing",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One run.

    Attributes:
        campaign: `faults`, `clean end` or `hostile`.
        seed: What the case was drawn from.
        backend: `local` or `compose`.
        experiment: `async`, `sync` or `hostile`.
        workers: The number of workers.
        ps: The number of parameter servers.
        steps: The requested global steps.
        replicas: Gradients in one update, or None: of each worker.
        fault: Its fault.
        target: The target of the fault.
        when: The moment of the fault.
        amount_s: The delay of a start, or the change of a clock; else 0.
        follow_up: How a run of a killed client was collected.
        policy: Its policy.
        state: The end state of the run.
        exit_code: The command's; -1: it was killed.
        cause: lab's cause; "" for a success.
        seconds: From the fault to the command's exit, or None.
        verdict: The verdict of the harness.
        details: The faults as text.
        commit: The commit, with a `+` where files were changed.
        date: Its date, `2026-11-21`.
        harm: The harm of a hostile program.
    """

    campaign: str
    seed: int
    backend: str
    experiment: str
    workers: int
    ps: int
    steps: int
    replicas: int | None
    fault: str
    target: str
    when: str
    amount_s: float
    follow_up: str
    policy: str
    state: str
    exit_code: int
    cause: str
    seconds: float | None
    verdict: str
    details: tuple[str, ...]
    commit: str
    date: str
    harm: str = ""

    @property
    def outcome(self) -> str:
        """How it ended, for a table: `failed (signal)`."""
        return f"{self.state or 'unknown'} ({self.cause})" if self.cause else self.state

    @property
    def bad(self) -> bool:
        """Whether it is a finding."""
        return self.verdict in BAD

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Row:
        """Read it back."""
        raw = json.loads(text)
        return cls(**{**raw, "details": tuple(raw["details"])})


def row_of(
    case: Case,
    judgement: Judgement,
    *,
    campaign: str,
    seconds: float | None,
    commit: str,
    date: str,
) -> Row:
    """A case and its result as a row."""
    return Row(
        campaign=campaign,
        seed=case.seed,
        backend=case.backend,
        experiment=case.experiment,
        workers=case.workers,
        ps=case.ps,
        steps=case.steps,
        replicas=case.replicas,
        fault=case.fault.value,
        target=case.target,
        when=str(case.when),
        amount_s=case.amount_s,
        follow_up=case.follow_up,
        policy=case.policy.value,
        state=judgement.outcome.state,
        exit_code=judgement.outcome.exit_code,
        cause=judgement.outcome.cause,
        seconds=None if seconds is None else round(seconds, 1),
        verdict=judgement.verdict.value,
        details=judgement.details,
        commit=commit,
        date=date,
        harm=case.harm,
    )


def read(path: Path) -> list[Row]:
    """All rows so far, oldest first."""
    if not path.is_file():
        return []
    return [Row.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append(path: Path, row: Row) -> None:
    """Keep one more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(row.to_json() + "\n")


def newest(rows: Iterable[Row]) -> list[Row]:
    """The last row of each case, in the order of their seeds: a case may have run again."""
    last = {(row.campaign, row.backend, row.seed): row for row in rows}
    return sorted(last.values(), key=lambda row: (row.campaign, row.seed, row.backend))


def unseen(rows: Sequence[Row], campaign: str) -> Iterator[int]:
    """Seeds without a row: a stopped harness resumes there."""
    seen = {row.seed for row in rows if row.campaign == campaign}
    first = NEW_FROM if campaign == FAULTS else 0
    return (seed for seed in count(first) if seed not in seen)


def findings(rows: Sequence[Row], campaign: str) -> list[int]:
    """Seeds whose newest row is a finding."""
    return [row.seed for row in newest(rows) if row.bad and row.campaign == campaign]


def totals(rows: Sequence[Row]) -> str:
    """How many runs there are, and how many of them had which verdict, in one line."""
    counts = Counter(row.verdict for row in rows)
    return f"{len(rows)} runs: " + ", ".join(
        f"{counts[key]} {name}" for key, name in _TOTALS.items()
    )
