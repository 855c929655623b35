"""The gradebook: what seats have passed, from an archive in which all files are the students'."""

from __future__ import annotations

import csv
import io
import json
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab.base.errors import InputError
from lab.protocol.volume.status import digest_of
from lab.runner.store.directory import RunDir, read_statuses
from lab.teach.classroom import gradebook as module
from lab.teach.classroom.gradebook import Entry, as_csv, as_grades, read_gradebook
from lab.teach.lessons.answers import FILE, add_answers
from lab.verbs import class_actions
from tests.support.recorded import BEGAN_UNIX, make
from tests.support.specs import update

RUN = "20261127-0900-async-ada1"
Archive = Callable[..., Path]


@pytest.fixture
def seat(tmp_path: Path) -> Path:
    """The run store of ada, with a run that passes the first stage of `async`, and two answers."""
    store = tmp_path / "ada/runs"
    run = make(store, RUN, steps=550)
    for task, status in read_statuses(run, run.read()).items():
        written = digest_of(run.records(task)).hexdigest()
        run.status(task).write_text(replace(status, records_sha256=written).to_json())
    add_answers(store, "async", {"updates": "1", "last": "worker-0"})
    add_answers(store, "async", {"updates": "1650"})
    return store


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Write the archive of the class with ada's files, and with others by name."""

    def write(**others: bytes) -> Path:
        path = tmp_path / "work.zip"
        with zipfile.ZipFile(path, "w") as found:
            found.writestr("bob/notebooks/00_tour.ipynb", "{}")
            found.writestr("resets/ada-20261201-090000.zip", "")
            for file in sorted((tmp_path / "ada").rglob("*")):
                if file.is_file():
                    found.write(file, file.relative_to(tmp_path))
            for name, content in others.items():
                found.writestr(name, content)
        return path

    return write


def stage(path: Path, seat: str = "ada", name: str = "train") -> Entry:
    entries = {(each.seat, each.lesson, each.stage): each for each in read_gradebook(path)}
    return entries[seat, "async", name]


def test_a_stage_says_who_when_how_often_and_by_what(seat: Path, archive: Archive) -> None:
    found = stage(archive())
    assert (found.passed, found.missing) == (True, "")
    assert (found.runs, found.answers, found.run_ids) == (1, 3, (RUN,))
    assert found.typed == ("updates", "last")
    newest = json.loads((seat / FILE).read_text().splitlines()[-1])["time_unix"]
    assert found.when == datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds")
    other = stage(archive(), "bob")
    assert (other.passed, other.when, other.runs, other.run_ids) == (False, "", 0, ())
    assert "lab run async" in other.missing
    late = stage(archive(), name="late")
    assert not late.passed
    assert "--start" in late.missing


def test_an_answer_that_is_wrong_passes_nothing(seat: Path, archive: Archive) -> None:
    add_answers(seat, "async", {"updates": "1651"})
    assert (stage(archive()).passed, stage(archive()).typed) == (False, ("last",))


def test_a_forged_summary_or_record_changes_nothing(seat: Path, archive: Archive) -> None:
    honest = stage(archive())
    run = RunDir(seat / RUN)
    run.summary_path.write_text('{"state": "succeeded", "global_step": 1}')
    assert stage(archive()) == honest
    records = run.records("worker-0")
    records.write_text(records.read_text() + '{"kind": "event"}\n')  # nothing else tells it
    found = stage(archive())
    assert not found.passed
    assert found.missing


def test_a_student_can_write_a_run_that_never_took_place(seat: Path, archive: Archive) -> None:
    """docs/how-to/class-run.md says so: who writes records, statuses and `run.json` is believed."""
    update(RunDir(seat / RUN), started_unix=BEGAN_UNIX - 100)
    assert stage(archive()).passed


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1", "@SUM(A1)", "a,\r\n=1", "\x1b[2J"])
def test_no_text_of_a_student_gets_into_the_table(text: str, seat: Path, archive: Archive) -> None:
    update(RunDir(seat / RUN), reason=text, cluster_file=text)
    for name in ("updates", text):
        with (seat / FILE).open("a") as file:
            line = {"time_unix": 1, "lesson": "async", "question": name, "text": text}
            file.write(json.dumps(line) + "\n")
    table = as_csv(read_gradebook(archive(**{f"ada/runs/{text}/run.json": b"{}"})))
    for row in csv.reader(io.StringIO(table)):
        for cell in row:
            assert text not in cell
            assert cell[:1] not in {"=", "+", "-", "@", "\t", "\r", "\n"}


@pytest.mark.parametrize("name", ["run.json", "status/worker-0.json", "tasks/worker-0.jsonl"])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 5000])
def test_damaged_files_prove_nothing(
    name: str, content: bytes, seat: Path, archive: Archive
) -> None:
    (seat / RUN / name).write_bytes(content)
    assert not stage(archive()).passed


def test_a_seat_with_too_many_records(
    seat: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    old = make(seat, "20261126-0900-async-ada0", steps=550)
    assert stage(archive()).runs == 2
    used = [
        seat / FILE,
        *seat.glob("*/run.json"),
        *seat.glob("*/status/*"),
        *seat.glob("*/tasks/*"),
    ]
    size = sum(path.stat().st_size for path in used)
    monkeypatch.setattr(module, "_MAX_BYTES", size - old.info_path.stat().st_size)
    assert stage(archive()).passed
    assert notices == ["warning: ada: too many records; its oldest runs are not read"]
    monkeypatch.setattr(module, "_MOST_FILES", 3)
    assert not stage(archive()).passed


def test_paths_stay_inside(seat: Path, archive: Archive, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    names = (f"ada/runs/{RUN}/tasks/..", "../runs/x/run.json", "/ada/runs/x/run.json")
    path = archive(**dict.fromkeys(names, b"{}"), **{f"ada/runs/{RUN}/tasks/{'x' * 300}": b""})
    assert stage(path).passed
    assert sorted(each for each in tmp_path.rglob("*") if each != path) == before


@pytest.mark.parametrize(
    ("offset", "value"), [(8, 1), (8, 0x20), (10, 8), (10, 9), (10, 12), (10, 14), (10, 99)]
)
def test_a_damaged_file_of_a_seat_costs_this_file_alone(
    offset: int, value: int, seat: Path, archive: Archive, notices: list[str]
) -> None:
    path = archive(**{f"bob/runs/{FILE}": b"x" * 99})
    damage(path, offset, value)
    assert stage(path).passed
    assert notices == ["warning: bob: not read: 1 damaged file"]


def damage(path: Path, offset: int, value: int) -> None:
    """Change a number of the last file in the directory of an archive."""
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, data.rfind(b"PK\x01\x02") + offset, value)
    path.write_bytes(data)


def test_only_the_lessons_that_seats_answered_are_listed(seat: Path, archive: Archive) -> None:
    """Runs of `async` count in other lessons, too."""
    add_answers(seat, "linear", {"computes": "worker-0"})
    assert {each.lesson for each in read_gradebook(archive())} == {"async", "linear"}
    # Without any answer, the runs must do.
    (seat / FILE).unlink()
    assert {each.lesson for each in read_gradebook(archive())} >= {"async", "tour"}


def grades(path: Path, platform: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(as_grades(read_gradebook(path), platform))))


def test_canvas_gets_the_columns_that_its_import_needs(seat: Path, archive: Archive) -> None:
    """Canvas's `GradebookImporter` finds its columns by these names and this order.

    https://github.com/instructure/canvas-lms/blob/master/lib/gradebook_importer.rb
    """
    add_answers(seat, "linear", {"computes": "worker-0"})
    header, points, ada, bob = grades(archive(), "canvas")
    assert header == [
        *("Student", "ID", "SIS User ID", "SIS Login ID", "Section"),
        *("async", "linear"),
    ]
    assert points == ["    Points Possible", "", "", "", "", "100", "100"]
    assert ada == ["ada", "", "", "ada", "", "33.33", "0"]
    assert bob == ["bob", "", "", "bob", "", "0", "0"]


def test_moodle_gets_a_column_for_the_user_and_one_for_each_lesson(
    seat: Path, archive: Archive
) -> None:
    assert grades(archive(), "moodle") == [["Username", "async"], ["ada", "33.33"], ["bob", "0"]]


@pytest.mark.parametrize("platform", ["canvas", "moodle"])
def test_a_grade_is_the_share_of_the_stages(platform: str) -> None:
    entries = [
        Entry("ada", "async", name, passed, "", 0, 0, (), (), "")
        for name, passed in (("train", True), ("late", True), ("stop", False))
    ]
    row = list(csv.reader(io.StringIO(as_grades(entries, platform))))[-1]
    assert row[-1] == "66.67"


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\t=1", "Ada", "a,b"])
def test_a_directory_that_is_no_name_of_a_seat_gets_into_no_table(
    name: str, seat: Path, archive: Archive
) -> None:
    path = archive(**{f"{name}/runs/{FILE}": (seat / FILE).read_bytes()})
    assert {each.seat for each in read_gradebook(path)} == {"ada", "bob"}
    for platform in ("canvas", "moodle"):
        assert name not in as_grades(read_gradebook(path), platform)


@pytest.mark.parametrize("platform", ["canvas", "moodle"])
def test_the_grades_are_printed_or_written(
    platform: str, seat: Path, archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = archive(), tmp_path / "grades.csv"
    class_actions.gradebook(Path(), of=str(path), output=None, for_=platform).show()
    table = as_grades(read_gradebook(path), platform)
    assert capsys.readouterr().out == table
    class_actions.gradebook(Path(), of=str(path), output=str(file), for_=platform).show()
    assert file.read_text() == table
    assert capsys.readouterr().out == ""


def test_only_the_user_can_read_the_table(seat: Path, archive: Archive, tmp_path: Path) -> None:
    table = tmp_path / "stages.csv"
    class_actions.gradebook(Path(), of=str(archive()), output=str(table), for_=None)
    assert table.stat().st_mode & 0o777 == 0o600


def test_what_is_no_archive_is_refused(tmp_path: Path, archive: Archive) -> None:
    (tmp_path / "x").write_text("no archive")
    damaged = archive()
    damage(damaged, 6, 99)  # the version of zip: its directory cannot be read
    for path in (tmp_path / "x", damaged):
        with pytest.raises(
            InputError, match=f"{path} is not an archive of a class, or it is damaged; name"
        ):
            read_gradebook(path)
    with pytest.raises(FileNotFoundError):
        read_gradebook(tmp_path / "missing")
