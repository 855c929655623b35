"""`tools/subjects.py`: which commits have a subject that is too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import run_command
from tools import subjects


def git(folder: Path, *arguments: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return run_command(["git", *named], cwd=folder, check=True).stdout.strip()


def commit(folder: Path, subject: str) -> str:
    git(folder, "commit", "--quiet", "--allow-empty", f"--message={subject}\n\n{'b' * 90}")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet")
    return folder


def test_a_long_subject_after_the_start_fails(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = commit(project, "a" * 99)
    commit(project, "a" * 72)
    assert subjects.main(project, start) == 0
    assert capsys.readouterr().out == ""
    long = commit(project, "a" * 73)
    commit(project, "Shorten")
    assert subjects.main(project, start) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("error: ")
    assert line.endswith(f": {long[:7]} {'a' * 73}")


def test_without_the_start_there_is_nothing_to_check(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = commit(project, "a" * 99)
    commit(project, "a" * 73)
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", project.as_uri(), str(shallow))
    archive = tmp_path / "archive"
    archive.mkdir()
    for folder in (shallow, archive):
        assert subjects.main(folder, start) == 0
        assert "nothing to check" in capsys.readouterr().out
