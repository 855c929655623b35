"""Which inputs of each group have passed: `tests/passed.json`, which only a complete run writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from pydantic import TypeAdapter, ValidationError

from tests.groups.group import LANDING

FILE: Final = "tests/passed.json"


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


_RECORDS: Final = TypeAdapter(dict[str, Record])


def read_records(root: Path) -> dict[str, Record]:
    """Return the records by their groups; none from a damaged file, so that all groups run."""
    try:
        return _RECORDS.validate_json((root / FILE).read_bytes(), strict=True)
    except (OSError, ValidationError):
        return {}


def write_records(root: Path, records: Mapping[str, Record]) -> None:
    values = _RECORDS.dump_json(dict(sorted(records.items())), indent=1)
    (root / FILE).write_bytes(values + b"\n")


def read_outcomes(junit: Path) -> dict[str, Outcome]:
    """Return what the tests did, by their groups, from a file of `pytest --junitxml`."""
    outcomes: dict[str, Outcome] = {}
    for case in ElementTree.parse(junit).iter("testcase"):  # noqa: S314  (pytest wrote it)
        properties = {each.attrib["name"]: each.attrib["value"] for each in case.iter("property")}
        outcome = outcomes.setdefault(properties.get("group", LANDING), Outcome())
        outcome.tests += 1
        outcome.trainings += int(properties.get("trainings", "0"))
        outcome.seconds += float(case.get("time", "0"))
        outcome.passed += {"failure", "error", "skipped"}.isdisjoint(each.tag for each in case)
    return outcomes


def wall_time(junit: Path) -> float:
    suites = ElementTree.parse(junit).iter("testsuite")  # noqa: S314  (pytest wrote it)
    return sum(float(suite.get("time", "0")) for suite in suites)
