"""Putting a project back to where a stage of a lesson ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cli import main
from lab.cli.commands.restore import command
from lab.errors import LabError
from lab.lessons import restore
from lab.lessons.check import Evidence
from lab.lessons.lesson import load_lesson
from lab.lessons.restore import missing_stages, restore_files
from lab.project import replace_files
from lab.shipped import SHIPPED
from tests.support.lessons import LATE, SLOW, measured

PROGRAM = "scripts/mnist_async.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with programs, one of them changed, and a program of the user's own."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / PROGRAM).write_text("changed")
    (tmp_path / "scripts/mine.py").write_text("mine")
    return tmp_path


def test_changed_programs_are_kept_and_written_anew(project: Path) -> None:
    kept = restore_files(project)
    assert kept is not None
    assert kept.parent == project
    assert [path.relative_to(kept).as_posix() for path in kept.rglob("*.py")] == [PROGRAM]
    assert (kept / PROGRAM).read_text() == "changed"
    assert (project / PROGRAM).read_bytes() == (SHIPPED / PROGRAM).read_bytes()
    assert (project / "scripts/mine.py").read_text() == "mine"
    assert (project / "scripts/mnist_sync.py").is_file()  # it was missing
    assert not (project / "clusters").exists()  # the project had none
    assert restore_files(project) is None


def test_what_is_behind_a_link_stays(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (project / "scripts").rename(elsewhere)
    (project / "scripts").symlink_to(elsewhere)
    kept = restore_files(project)
    assert kept is not None
    assert (kept / "scripts").is_symlink()
    assert (elsewhere / "mnist_async.py").read_text() == "changed"
    assert not (project / "scripts").is_symlink()


def test_replaced_files_come_back_if_one_cannot_be_written(tmp_path: Path) -> None:
    root, shipped = tmp_path / "project", tmp_path / "shipped"
    for path in (root / "scripts/a", shipped / "scripts/a", shipped / "clusters/b"):
        path.parent.mkdir(parents=True)
        path.write_text(str(path))
    (root / "clusters").symlink_to(tmp_path)
    before = sorted(root.rglob("*"))
    names = ("scripts/a", "clusters/b", "new/missing")
    with pytest.raises(FileNotFoundError):
        replace_files(root, {name: shipped / name for name in names})
    assert sorted(root.rglob("*")) == before
    assert (root / "clusters").is_symlink()
    assert (root / "scripts/a").read_text() == str(root / "scripts/a")


def test_a_clone_has_the_shipped_files_itself(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "SHIPPED", project)
    assert restore_files(project) is None
    assert (project / PROGRAM).read_text() == "changed"


def test_only_missing_runs_of_earlier_stages_are_made() -> None:
    lesson = load_lesson("async")
    _, late, slow = lesson.stages

    def names(*runs: object) -> list[str]:
        evidence = Evidence({"async": runs}, [])
        return [each.name for each in missing_stages(lesson, slow, evidence)]

    assert names() == ["train", "late", "slow"]
    assert names(measured(given=LATE)) == ["train", "slow"]
    assert names(measured(given=SLOW), measured(given=LATE), measured()) == []
    evidence = Evidence({"async": [measured()]}, [])
    assert missing_stages(lesson, late, evidence) == [late]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("asinc", "late"), "no lesson 'asinc'; did you mean 'async'?"),
        (
            ("async", "lat"),
            "no stage 'lat' in async; did you mean 'late'? it has train, late, slow",
        ),
    ],
)
def test_wrong_names(
    arguments: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_run_that_lacks_what_its_stage_needs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[list[str]] = []
    monkeypatch.setattr(
        "lab.cli.commands.restore.arguments.call",
        lambda name, _command, argv: seen.append([name, *argv]),
    )
    with pytest.raises(LabError, match="train: its run is there, but no run of async has ended"):
        command(lesson="async", stage="late")
    assert seen == [["run", "async", "--cluster", "clusters/book.yaml", "--epochs", "1"]]
