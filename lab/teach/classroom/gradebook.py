"""The gradebook of a class: what each seat has passed, computed again from the archive of its work.

All files of a seat come from its student. Summaries are not read. Records must be those that the
agents wrote, by the digest in the tasks' statuses; but a student can write both. No other text of a
student gets into a table: a spreadsheet would run a cell that begins with `=`. For the same reason
a directory of the archive counts as a seat only if a class may have a seat of this name.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from lab.base.errors import InputError
from lab.base.formatting import counted
from lab.base.log import LOG
from lab.cluster.config.cluster import NODE
from lab.protocol.volume.layout import RUN_ID
from lab.runner.store.directory import DEFAULT_RUNS_DIR
from lab.teach.classroom.names import COPIES
from lab.teach.lessons.answers import FILE, tests_of
from lab.teach.lessons.check import Evidence, StageResult, check_lesson
from lab.teach.lessons.lesson import Lesson, Stage, load_lessons

_EVIDENCE: Final = re.compile(
    rf"(?P<seat>[^/]+)/{DEFAULT_RUNS_DIR}/"
    rf"(?:{re.escape(FILE)}|(?P<run>{RUN_ID.pattern})/(?:run\.json|(?:status|tasks)/[^/]+))"
)
_MAX_BYTES: Final = 128 << 20  # of all files of a seat that are read
_MOST_FILES: Final = 20_000

PLATFORMS: Final = {
    "canvas": ("Student", "ID", "SIS User ID", "SIS Login ID", "Section"),
    "moodle": ("Username",),
}
"""The learning platforms that import grades, with their columns for the student."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One stage of a lesson, in one seat.

    Attributes:
        seat: The seat.
        lesson: The lesson.
        stage: The stage.
        passed: Whether its runs have all that is needed, and every answer is right.
        when: When it was passed: the end of its newest run, or its newest answer. ISO 8601, in UTC;
            "" if it is not passed.
        runs: The number of ended runs of its experiments.
        answers: The number of answers to its questions.
        run_ids: The runs that were judged.
        typed: The questions with a right answer; the student typed it, nothing measured it. Also
            the tests of a program that passed, as the student's `lab check` says.
        missing: What its runs lack, or which questions lack a right answer.
    """

    seat: str
    lesson: str
    stage: str
    passed: bool
    when: str
    runs: int
    answers: int
    run_ids: tuple[str, ...]
    typed: tuple[str, ...]
    missing: str


def read_gradebook(path: Path) -> list[Entry]:
    """Return the gradebook of the archive of a class.

    Raises:
        InputError: The file is not an archive.
        OSError: It cannot be read.
    """
    try:
        archive = zipfile.ZipFile(path)
    except OSError:
        raise
    except Exception as error:  # a damaged byte raises errors of any kind
        raise InputError(
            f"{path} is not an archive of a class, or it is damaged",
            "name the file that `lab class down` wrote",
        ) from error
    with archive:
        return gradebook(archive)


def gradebook(archive: zipfile.ZipFile) -> list[Entry]:
    """Return the stages of the lessons that any seat has answered, for every seat.

    Lessons share experiments, so a run does not identify its lesson. If no seat has answers, take
    the lessons whose experiments a seat has run.

    Args:
        archive: The work of the seats, readable even if it is open for writing.

    Raises:
        OSError: The archive cannot be read.
    """
    folders = {name.partition("/")[0] for name in archive.namelist() if "/" in name} - {COPIES}
    seats = [folder for folder in sorted(folders) if re.fullmatch(NODE, folder)]
    lessons = load_lessons()
    entries = [entry for seat in seats for entry in _seat(archive, seat, lessons)]
    answered = {entry.lesson for entry in entries if entry.answers}
    used = answered or {entry.lesson for entry in entries if entry.runs}
    return [entry for entry in entries if entry.lesson in used]


def as_csv(entries: Iterable[Entry]) -> str:
    """Return a gradebook as CSV: a header and one row for each entry."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name.replace("_", " ") for field in fields(Entry))
    for entry in entries:
        writer.writerow(_cell(value) for value in asdict(entry).values())
    return text.getvalue()


def by_lesson(entries: Iterable[Entry]) -> Iterator[tuple[tuple[str, str], list[Entry]]]:
    """Yield each seat and lesson of a gradebook, with the stages of the lesson."""
    for seat_and_lesson, stages in groupby(entries, key=attrgetter("seat", "lesson")):
        yield seat_and_lesson, list(stages)


def as_grades(entries: Sequence[Entry], platform: str) -> str:
    """Return a gradebook as the CSV that one of `PLATFORMS` imports.

    It has a row for each seat and a column for each lesson. A grade is the share of the lesson's
    stages that are passed, of 100 points: Moodle gives a new grade item this maximum.
    """
    rows: dict[str, dict[str, str]] = {}
    for (seat, lesson), stages in by_lesson(entries):
        # The class knows nothing about a student but the name of the seat.
        row = rows.setdefault(seat, {"Student": seat, "SIS Login ID": seat, "Username": seat})
        row[lesson] = f"{100 * sum(stage.passed for stage in stages) / len(stages):.4g}"
    lessons = dict.fromkeys((entry.lesson for entry in entries), "100")
    text = io.StringIO()
    columns = [*PLATFORMS[platform], *lessons]
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    if platform == "canvas":
        writer.writerow({"Student": "    Points Possible", **lessons})
    writer.writerows(rows.values())
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(value) if isinstance(value, tuple) else value


def _seat(archive: zipfile.ZipFile, seat: str, lessons: dict[str, Lesson]) -> Iterator[Entry]:
    with TemporaryDirectory(prefix="lab-gradebook-") as folder:
        _extract(archive, seat, folder)
        evidence = Evidence.read(Path(folder, seat, DEFAULT_RUNS_DIR))
        for name, lesson in lessons.items():
            results = check_lesson(name, lesson, evidence)
            for stage, result in zip(lesson.stages, results, strict=True):
                yield _entry(seat, name, stage, result, evidence)


def _extract(archive: zipfile.ZipFile, seat: str, folder: str) -> None:
    """Write the evidence of a seat to a directory, the newest runs first."""
    matches = filter(None, map(_EVIDENCE.fullmatch, archive.namelist()))
    files = [match for match in matches if match["seat"] == seat]
    files.sort(key=lambda file: file["run"] or "~", reverse=True)  # the answers first
    size = damaged = 0
    for count, file in enumerate(files):
        size += archive.getinfo(file[0]).file_size
        if size > _MAX_BYTES or count >= _MOST_FILES:
            LOG.warning(f"warning: {seat}: too many records; its oldest runs are not read")
            break
        try:
            archive.extract(file[0], folder)
        except Exception:  # noqa: BLE001  (of zipfile, each of its decompressors, and the disk)
            damaged += 1
    if damaged:
        LOG.warning(f"warning: {seat}: not read: {counted(damaged, 'damaged file')}")


def _entry(seat: str, lesson: str, stage: Stage, result: StageResult, evidence: Evidence) -> Entry:
    asked = [question.name for question in stage.questions]
    names = [tests_of(stage.name)] if stage.code else asked
    answers = [a for a in evidence.answers if a.lesson == lesson and a.question in names]
    runs = [run for name in set(stage.runs.values()) for run in evidence.runs.get(name, ())]
    ids = tuple(dict.fromkeys(result.runs.values()))
    times = [run.info.stopped_unix or 0.0 for run in runs if run.info.run_id in ids]
    times += [answer.time_unix for answer in answers]
    when = datetime.fromtimestamp(max(times, default=0.0), UTC)
    right = tuple(reply.question for reply in result.replies if reply.right)
    wanted = [name for name in names if name not in right]
    no_answer = f"no correct answer to: {', '.join(wanted)}" if wanted else ""
    return Entry(
        seat,
        lesson,
        stage.name,
        result.passed,
        when.isoformat(timespec="seconds") if result.passed else "",
        len(runs),
        len(answers),
        ids,
        right,
        no_answer if stage.code else result.hint or no_answer,
    )
