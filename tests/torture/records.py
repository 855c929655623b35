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
    """The files of one run that the checks need; what is missing is empty."""

    info: Record = field(default_factory=dict)
    summary: Record = field(default_factory=dict)
    statuses: Mapping[str, Record] = field(default_factory=dict)
    records: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    torn: Sequence[str] = ()

    @classmethod
    def read(cls, run: Path) -> Home:
        records: dict[str, list[Record]] = defaultdict(list)
        torn: list[str] = []
        for path in run.glob("tasks/*.jsonl"):
            for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
                if line.endswith(b"\n") and (record := object_of(line)):
                    records[path.stem].append(record)
                else:
                    torn.append(f"{path.stem}: line {number} is no record")
        info, summary = (_in_file(run / f"{name}.json") for name in ("run", "summary"))
        statuses = {path.stem: _in_file(path) for path in run.glob("status/*.json")}
        return cls(info, summary, statuses, records, torn)

    def global_step(self) -> int:
        """The highest global step in the records; 0 where they have none."""
        records = [record for several in self.records.values() for record in several]
        return max((record.get("global_step") or 0 for record in records), default=0)


def missing(home: Home) -> list[str]:
    """Missing, repeated or unordered numbers, ends without a `final`, torn lines.

    Each attempt of a task counts from 0. A record without a number is the agent's own.
    """
    faults = [*home.torn]
    for task, records in home.records.items():
        numbers: dict[int, list[int]] = defaultdict(list)
        for record in records:
            if isinstance(record.get("seq"), int):
                numbers[record.get("attempt", 0)].append(record["seq"])
        faults += [
            f"{task}, attempt {attempt}: its records are not numbered 0, 1, 2 and so on"
            for attempt, own in numbers.items()
            if own != [*range(len(own))]
        ]
    for task, status in home.statuses.items():
        kinds = [record.get("kind") for record in home.records.get(task, ()) if "seq" in record]
        well = status.get("state") == "succeeded" and status.get("exit_code") == 0
        if well and task.startswith("worker") and kinds[-1:] != ["final"]:
            faults.append(f"{task} succeeded, and its last record is not at home")
    if home.summary.get("records_lost"):
        faults.append(f"the summary has {home.summary['records_lost']} records lost")
    return faults


def wrong_sums(home: Home, experiment: str, steps: int) -> list[str]:
    """The inconsistencies of a run that succeeded.

    Where every attempt succeeded: each of the asked steps was made once, and each update
    reached the parameters once. An attempt that was killed, or failed, may have taken a number for
    a step that it never applied, one at the most, and nobody knows all of its local steps.
    """
    attempts: dict[tuple[str, int], Record] = {}
    probes = [
        record
        for several in home.records.values()
        for record in several
        if isinstance(record.get("probe"), int)
    ]
    for task, records in home.records.items():
        for record in records:
            if task.startswith("worker"):
                final = record.get("kind") == "final" and record.get("status") != "failed"
                key = task, record.get("attempt", 0)
                attempts[key] = record if final else attempts.get(key, {})
    if not probes:
        return ["no record has a test of the final parameters"]
    step, updates = probes[-1].get("global_step"), probes[-1]["probe"]
    killed = sum(not final for final in attempts.values())
    faults = [f"global step {step} instead of {steps}"] if step != steps else []
    if not isinstance(step, int) or not updates <= step <= updates + killed:
        faults.append(f"global step {step}, but {updates} updates, with {killed} attempts killed")
    if killed:
        return faults
    local = sum(final.get("local_step", 0) for final in attempts.values())
    if experiment == "async" and local != step:
        faults.append(f"{local} local steps in all, but global step {step}")
    if home.summary.get("updates_conserved") is not True:
        faults.append(f"updates_conserved is {home.summary.get('updates_conserved')}")
    return faults


def object_of(text: bytes) -> Record | None:
    """The JSON object in a text, or None."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _in_file(path: Path) -> Record:
    return (object_of(path.read_bytes()) or {}) if path.is_file() else {}
