"""The collected files of a run, read without lab: records, numbers, ends."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Home:
    """The files of one run that the checks need; what is missing is empty.

    Attributes:
        info: `run.json`.
        summary: `summary.json`.
        statuses: Task to `status/<task>.json`.
        records: Task to the lines of `tasks/<task>.jsonl`.
        torn: Lines that are no record: a torn one, or one in two halves.
    """

    info: Record = field(default_factory=dict)
    summary: Record = field(default_factory=dict)
    statuses: Mapping[str, Record] = field(default_factory=dict)
    records: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    torn: tuple[str, ...] = ()

    @classmethod
    def read(cls, run: Path) -> Home:
        """Read a run's directory."""
        records: dict[str, list[Record]] = {}
        torn: list[str] = []
        for path in sorted(run.glob("tasks/*.jsonl")):
            records[path.stem] = []
            for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
                if line.endswith(b"\n") and (record := object_of(line)):
                    records[path.stem].append(record)
                else:
                    torn.append(f"{path.stem}: line {number} is no record")
        info, summary = (_in_file(run / f"{name}.json") for name in ("run", "summary"))
        statuses = {path.stem: _in_file(path) for path in run.glob("status/*.json")}
        return cls(info, summary, statuses, records, tuple(torn))

    def global_step(self) -> int:
        """The highest global step in the records; 0 where they have none."""
        steps = (each.get("global_step") for several in self.records.values() for each in several)
        return max((step for step in steps if isinstance(step, int)), default=0)


def missing(home: Home) -> list[str]:
    """Missing, repeated or unordered numbers, ends without a `final`, torn lines.

    Each attempt of a task counts from 0. A record without a number is the agent's own.
    """
    found = [*home.torn]
    for task, records in home.records.items():
        by_attempt: dict[int, list[int]] = defaultdict(list)
        for record in records:
            if isinstance(record.get("seq"), int):
                by_attempt[record.get("attempt", 0)].append(record["seq"])
        for attempt, numbers in by_attempt.items():
            wrong = [place for place, number in enumerate(numbers) if number != place][:1]
            found += [f"{task}, attempt {attempt}: {numbers[i]} where {i} belongs" for i in wrong]
    for task, status in home.statuses.items():
        own = [record for record in home.records.get(task, ()) if "seq" in record]
        well = status.get("state") == "succeeded" and status.get("exit_code") == 0
        if well and task.startswith("worker") and (not own or own[-1].get("kind") != "final"):
            found.append(f"{task} succeeded, and its last record is not at home")
    if home.summary.get("records_lost"):
        found.append(f"the summary has {home.summary['records_lost']} records lost")
    return found


def wrong_sums(home: Home, experiment: str, steps: int) -> list[str]:
    """The inconsistencies of a run that succeeded.

    Where every attempt succeeded: each of the asked steps was made once, and each update
    reached the parameters once. An attempt that was killed, or failed, may have taken a number for
    a step that it never applied, one at the most, and nobody knows all of its local steps.
    """
    of_attempts = [
        ((task, record.get("attempt", 0)), record)
        for task, records in home.records.items()
        for record in records
        if task.startswith("worker")
    ]
    finals = {
        attempt: record
        for attempt, record in of_attempts
        if record.get("kind") == "final" and record.get("status") != "failed"
    }
    killed = len({attempt for attempt, _ in of_attempts} - finals.keys())
    evals = [r for rs in home.records.values() for r in rs if isinstance(r.get("probe"), int)]
    if not evals:
        return ["no record has a test of the final parameters"]
    step, probe = evals[-1].get("global_step"), evals[-1]["probe"]
    found = []
    if step != steps:
        found.append(f"global step {step} instead of {steps}")
    if not isinstance(step, int) or not probe <= step <= probe + killed:
        found.append(f"global step {step}, but {probe} updates, with {killed} attempts killed")
    if killed:
        return found
    local = sum(record.get("local_step", 0) for record in finals.values())
    if experiment == "async" and local != step:
        found.append(f"{local} local steps in all, but global step {step}")
    if home.summary.get("updates_conserved") is not True:
        found.append(f"updates_conserved is {home.summary.get('updates_conserved')}")
    return found


def object_of(text: bytes) -> Record | None:
    """The JSON object in a text, or None."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _in_file(path: Path) -> Record:
    return (object_of(path.read_bytes()) or {}) if path.is_file() else {}
