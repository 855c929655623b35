"""The table of the tests in CONTRIBUTING.md, from the newest files of pytest and the records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.groups.group import GROUPS, LANDING
from tests.groups.records import Outcome, read_outcomes, read_records, wall_time

PAGE: Final = "CONTRIBUTING.md"
BEGIN: Final = "<!-- python -m tests.groups table -->\n"
END: Final = "<!-- end of the table -->\n"
STAGES: Final = {
    "test-unit": "unit, golden, property and hostile tests",
    "test-short": "short end-to-end tests",
    "test-landing": "images, containers and the main programs",
}
"""The files in build/junit that the tests of every landing write, and what they test."""


def write(root: Path) -> None:
    """Replace the table.

    Raises:
        FileNotFoundError: The tests of a landing have not run: there is no file of pytest.
    """
    page = root / PAGE
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}{''.join(_lines(root))}{END}{after}", "utf-8")


def _lines(root: Path) -> Iterator[str]:
    yield "| tests | what they test | number | training runs | minutes |\n"
    yield "| --- | --- | ---: | ---: | ---: |\n"
    for name, about in STAGES.items():
        junit = root / f"build/junit/{name}.xml"
        done = replace(read_outcomes(junit)[LANDING], seconds=wall_time(junit))
        yield _row(f"`make {name}`, before every merge", about, done)
    records = read_records(root)
    for name, group in GROUPS.items():
        if record := records.get(name):
            done = Outcome(record.tests, record.trainings, record.minutes * 60)
            yield _row(f"`make test-{name}`", group.about, done)


def _row(name: str, about: str, outcome: Outcome) -> str:
    numbers = f"{outcome.tests} | {outcome.trainings} | {outcome.seconds / 60:.1f}"
    return f"| {name} | {about} | {numbers} |\n"
