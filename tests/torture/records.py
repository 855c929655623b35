"""The collected files of a run, read without lab: records, numbers, ends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Home:
    """The files of one run that the checks need.

    Attributes:
        info: `run.json`.
        summary: `summary.json`; empty where there is none.
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
        """Read a run's directory; what is missing is empty."""
        records: dict[str, list[Record]] = {}
        torn: list[str] = []
        for path in sorted(run.glob("tasks/*.jsonl")):
            records[path.stem] = []
            for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
                record = _object(line) if line.endswith(b"\n") else None
                if record is None:
                    torn.append(f"{path.stem}: line {number} is no record")
                else:
                    records[path.stem].append(record)
        return cls(
            object_of(run / "run.json"),
            object_of(run / "summary.json"),
            {path.stem: object_of(path) for path in sorted(run.glob("status/*.json"))},
            records,
            tuple(torn),
        )


def missing(home: Home) -> list[str]:
    """Missing, repeated or unordered numbers, ends without a `final`, torn lines.

    Each attempt of a task counts from 0. A record without a number is the agent's own.
    """
    found = [*home.torn]
    for task, records in home.records.items():
        by_attempt: dict[int, list[int]] = {}
        for record in records:
            if isinstance(record.get("seq"), int):
                by_attempt.setdefault(record.get("attempt", 0), []).append(record["seq"])
        for attempt, numbers in by_attempt.items():
            if numbers != [*range(len(numbers))]:
                wrong = next(i for i, number in enumerate(numbers) if number != i)
                found.append(f"{task}, attempt {attempt}: {numbers[wrong]} where {wrong} belongs")
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
    evals = [r for rs in home.records.values() for r in rs if isinstance(r.get("probe"), int)]
    if not evals:
        return ["no record tells of the final parameters"]
    last = evals[-1]
    step, probe = last.get("global_step"), last["probe"]
    attempts = {
        (task, record.get("attempt", 0))
        for task, records in home.records.items()
        if task.startswith("worker")
        for record in records
    }
    finals = {
        (task, record.get("attempt", 0)): record
        for task, records in home.records.items()
        for record in records
        if record.get("kind") == "final" and record.get("status") != "failed"
    }
    killed = len(attempts - finals.keys())
    found = []
    if step != steps:
        found.append(f"global step {step} instead of {steps}")
    if not isinstance(step, int) or not probe <= step <= probe + killed:
        found.append(f"global step {step}, but {probe} updates, with {killed} attempts killed")
    if experiment == "async" and not killed:
        local = sum(record.get("local_step", 0) for record in finals.values())
        if local != step:
            found.append(f"{local} local steps in all, but global step {step}")
    if not killed and home.summary.get("updates_conserved") is not True:
        found.append(f"updates_conserved is {home.summary.get('updates_conserved')}")
    return found


def highest_step(lines: Iterable[bytes]) -> int:
    """The highest global step in these lines; 0 where they have none."""
    found = (_object(line) for line in lines)
    steps = (record.get("global_step") for record in found if record is not None)
    return max((step for step in steps if isinstance(step, int)), default=0)


def object_of(path: Path) -> Record:
    """The JSON object in a file; empty where it is missing."""
    return (_object(path.read_bytes()) or {}) if path.is_file() else {}


def _object(text: bytes) -> Record | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
