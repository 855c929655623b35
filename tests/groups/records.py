"""Which inputs of each group have passed: `tests/passed.json`, which only a complete run writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

FILE: Final = "tests/passed.json"
LANDING: Final = "landing"
"""The name of the tests that are in no group, in the files of pytest."""


@dataclass(frozen=True)
class Record:
    """A complete run of a group that passed.

    Attributes:
        inputs: The digest over its inputs; see `Project.digest`.
        date: The day, as `2026-11-28`.
        minutes: How long its tests took, without the installation of what they need.
        tests: How many there are.
        trainings: How many trainings they started.
    """

    inputs: str
    date: str
    minutes: float
    tests: int
    trainings: int


@dataclass
class Outcome:
    """What the tests of a group did in one run."""

    tests: int = 0
    trainings: int = 0
    seconds: float = 0.0
    passed: int = 0

    @property
    def complete(self) -> bool:
        """Whether there are tests, and all of them ran and passed."""
        return 0 < self.tests == self.passed


def read_records(root: Path) -> dict[str, Record]:
    """Return the records by their groups; what is no record is left out, so that the group runs."""
    try:
        found = json.loads((root / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    records = {name: _record(value) for name, value in found.items()}
    return {name: record for name, record in records.items() if record is not None}


def write_records(root: Path, records: Mapping[str, Record]) -> None:
    """Replace the file with all records."""
    values = {name: asdict(records[name]) for name in sorted(records)}
    (root / FILE).write_text(json.dumps(values, indent=1) + "\n", "utf-8")


def read_outcomes(junit: Path) -> dict[str, Outcome]:
    """Return what the tests did, by their groups, from a file of `pytest --junitxml`."""
    outcomes: dict[str, Outcome] = {}
    for case in ElementTree.parse(junit).iter("testcase"):  # noqa: S314  (pytest wrote it)
        properties = {
            str(each.get("name")): str(each.get("value")) for each in case.iter("property")
        }
        outcome = outcomes.setdefault(properties.get("group", LANDING), Outcome())
        outcome.tests += 1
        outcome.trainings += int(properties.get("trainings", "0"))
        outcome.seconds += float(case.get("time", "0"))
        outcome.passed += not any(
            case.find(fault) is not None for fault in ("failure", "error", "skipped")
        )
    return outcomes


def wall_time(junit: Path) -> float:
    """Return the seconds that the whole run took, in however many processes."""
    suites = ElementTree.parse(junit).iter("testsuite")  # noqa: S314  (pytest wrote it)
    return sum(float(suite.get("time", "0")) for suite in suites)


def _record(value: Any) -> Record | None:
    try:
        record = Record(**value)
    except TypeError:
        return None
    types = {"inputs": str, "date": str, "minutes": float, "tests": int, "trainings": int}
    fits = all(type(getattr(record, name)) is kind for name, kind in types.items())
    return record if fits else None
