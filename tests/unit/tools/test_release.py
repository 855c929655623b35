"""`tools/release.py`: what it checks, builds and tags."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import ROOT, python, run_command
from tests.support.conditions import lacking
from tools import release

CHANGES = """\
# Changelog

## Unreleased

## 1.2.3 (2030-01-02)

### Added

- New.

## 1.2.2

- Old.
"""


def git(folder: Path, *arguments: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return run_command(["git", *named], cwd=folder, check=True).stdout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/__init__.py").write_text('"""A."""\n\n__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.3\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\ndynamic = ["version"]\n')
    (tmp_path / ".gitignore").write_text("/build/\n")
    git(tmp_path, "init", "--quiet")
    for name in ("name", "email"):
        git(tmp_path, "config", f"user.{name}", "a@b")
    commit(tmp_path)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "OUT", tmp_path / "build/release")
    monkeypatch.setattr(release, "PASSED", tmp_path / "build/ci-passed")
    monkeypatch.setattr(release, "make_files", lambda *_, **__: ["a-1.2.3.tar.gz"])
    return tmp_path


def commit(project: Path) -> None:
    """Commit all, and write what `.ci/run` writes."""
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--allow-empty", "--message=Change")
    (project / "build").mkdir(exist_ok=True)
    (project / "build/ci-passed").write_text(git(project, "rev-parse", "HEAD"))


def test_a_release_is_tagged_here_with_its_changes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.main([]) == 0
    tag = git(project, "tag", "--list", "--format=%(contents)").strip()
    assert re.fullmatch(r"lab 1\.2\.3\n\nBuilt with Python 3\.\d+\.\n\n### Added\n\n- New\.", tag)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "twine upload build/release/a-1.2.3.tar.gz" in shown.out
    assert release.main([]) == 1
    assert capsys.readouterr().err == (
        "error: the tag v1.2.3 exists; raise the version in lab/__init__.py\n"
    )


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("CHANGELOG.md", "(2030-01-02)", "(in preparation)", "no changes below `## 1.2.3 (DATE)`"),
        ("CHANGELOG.md", "### Added\n\n- New.", "", "no changes below `## 1.2.3 (DATE)`"),
        ("CHANGELOG.md", "Unreleased\n", "Unreleased\n\n- Newer.\n", "below `## Unreleased`; move"),
        ("CITATION.cff", "version: 1.2.3", "version: 1.2.2", "CITATION.cff has another version"),
        ("CITATION.cff", "version: 1.2.3\n", "", "write `version: 1.2.3`"),
        ("pyproject.toml", "dynamic", 'version = "1"\nx', "pyproject.toml has a version, too"),
    ],
)
def test_what_is_missing_is_named_with_its_fix(
    project: Path, capsys: pytest.CaptureFixture[str], name: str, old: str, new: str, message: str
) -> None:
    path = project / name
    path.write_text(path.read_text().replace(old, new, 1))
    commit(project)
    assert release.main([]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert git(project, "tag") == ""


def test_a_version_must_be_in_all_three_files(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / "lab/__init__.py"
    path.write_text(path.read_text().replace("1.2.3", "1.2.4"))
    commit(project)
    assert release.main([]) == 1
    cited, changes = capsys.readouterr().err.splitlines()
    assert "write `version: 1.2.4`" in cited
    assert "no changes below `## 1.2.4 (DATE)`" in changes
    assert git(project, "tag") == ""


def test_the_citation_has_the_version_of_lab() -> None:
    line = f"\nversion: {release.version_of(ROOT)}\n"
    assert line in (ROOT / "CITATION.cff").read_text("utf-8")


def test_only_the_tested_commit_is_released(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tested = (project / "build/ci-passed").read_text().strip()
    (project / "new").touch()
    assert release.main([]) == 1
    assert "files are not committed" in capsys.readouterr().err
    commit(project)
    (project / "build/ci-passed").write_text(f"{tested}\n")
    assert release.main([]) == 1
    assert f".ci/run has passed for {tested}, not" in capsys.readouterr().err
    (project / "build/ci-passed").unlink()
    assert release.main([]) == 1
    assert ".ci/run has passed for no commit" in capsys.readouterr().err


def test_a_dry_run_builds_all_files_and_makes_no_tag(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        lacking("this copy of the project is no repository")
    clone = tmp_path / "clone"
    git(ROOT, "clone", "--quiet", "--local", ".", str(clone))
    shutil.copy(release.__file__, clone / "tools")
    (clone / "untracked").touch()
    done = python("tools/release.py", "--dry-run", cwd=clone, check=True)
    assert "warning: files are not committed" in done.stderr
    assert "nothing is published" in done.stdout
    assert git(clone, "tag", "--list", "v*") == git(ROOT, "tag", "--list", "v*")
    out = clone / "build/release"
    sums = (out / "SHA256SUMS").read_text()
    names = {line.split("  ")[1] for line in sums.splitlines()}
    assert names == {each.name for each in out.iterdir()} - {"SHA256SUMS"}
    assert {Path(name).suffix for name in names} == {".gz", ".json", ".sha256", ".whl"}
    for path in out.glob("*.json"):
        described = json.loads(path.read_text())["metadata"]["component"]
        assert (described["name"], described["version"]) == ("gpulab", release.version_of(clone))
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=out, check=True)
