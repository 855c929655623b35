"""`tools/quick.py`: which unit tests belong to a change."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.groups.imports import read_sources
from tests.groups.inputs import Project
from tools import quick

FILES = {
    "lab/__init__.py": "",
    "lab/base/__init__.py": "",
    "lab/__main__.py": "from lab.runner import start\n",
    "lab/page.html.j2": "",
    "lab/runner/__init__.py": "",
    "lab/runner/collect.py": "from lab.base import text\n",
    "lab/runner/start.py": 'from lab.runner import collect\nPAGE = "page.html.j2"\n',
    "lab/task/agent/__main__.py": "",
    "lab/base/text.py": "",
    "tests/conftest.py": "",
    "tests/support/fakes.py": "from lab.runner import collect\n",
    "tests/unit/runner/test_collect.py": (
        "from lab.runner.collect import it\nfrom lab.base import text\n"
    ),
    "tests/unit/task/test_command.py": 'COMMAND = ["-m", "lab"]\n',
    "tests/unit/test_fakes.py": "def f():\n    import tests.support.fakes\n",
    "tests/unit/test_files.py": 'NAME = "clusters/one.yaml"\n',
    "tests/unit/base/test_words.py": "from lab.base import text\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def project(folder: Path) -> Project:
    sources = read_sources(folder)
    return Project(folder, frozenset(sources), sources)


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        # Its own test, those that import it, and those that import what does.
        ("lab/runner/collect.py", "collect fakes command"),
        ("lab/base/text.py", "words collect fakes command"),
        ("lab/runner/start.py", "command"),
        ("lab/__main__.py", "command"),
        ("tests/support/fakes.py", "fakes"),
        ("tests/unit/base/test_words.py", "words"),
        ("tests/e2e/test_run.py", ""),
        ("clusters/one.yaml", "files"),
        ("lab/page.html.j2", "command"),
        ("data/unknown.bin", ""),
    ],
)
def test_the_nearest_tests_of_a_changed_file_come_first(
    project: Project, changed: str, tests: str
) -> None:
    found = [Path(test).stem.removeprefix("test_") for test in quick.nearest([changed], project)]
    assert found == tests.split()


@pytest.mark.parametrize(
    ("fault", "failed"), [("", False), ("<failure/>", True), ("<error/>", True)]
)
def test_the_files_that_ran_and_their_faults_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, failed: bool
) -> None:
    monkeypatch.setattr(quick, "JUNIT", tmp_path / "quick.xml")
    cases = (
        f'<testcase classname="tests.unit.base.test_a" name="test_one">{fault}</testcase>'
        '<testcase classname="tests.unit.cli.test_b.TestIt" name="test_two"/>'
    )
    quick.JUNIT.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert quick._ran() == ({"tests/unit/base/test_a.py", "tests/unit/cli/test_b.py"}, failed)


def test_a_change_is_what_differs_from_the_main_branch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        named = ["-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        subprocess.run(["git", *named], cwd=folder, check=True, capture_output=True)

    monkeypatch.setattr(quick, "ROOT", folder)
    git("init", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--message=One")
    assert quick.changes() == set()
    git("switch", "--create", "mine")
    (folder / "lab/base/text.py").write_text("A = 1\n")
    git("commit", "--all", "--message=Two")
    (folder / "lab/runner/collect.py").unlink()
    (folder / "naïve name").touch()
    assert quick.changes() == {"lab/base/text.py", "lab/runner/collect.py", "naïve name"}
