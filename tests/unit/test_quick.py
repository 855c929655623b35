"""`tools/quick.py`: which unit tests belong to a change."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import quick

FILES = {
    "lab/__init__.py": "",
    "lab/text.py": "",
    "lab/run/__init__.py": "",
    "lab/run/collect.py": "",
    "lab/run/hidden.py": "",
    "lab/run/view/lines.py": "",
    "tests/support/fakes.py": "from lab.run import collect\n",
    "tests/unit/test_collect.py": "from lab.run.collect import it\n",
    "tests/unit/test_fakes.py": "def f():\n    import tests.support.fakes\n",
    "tests/unit/test_files.py": 'NAME = "clusters/one.yaml"\n',
    "tests/unit/test_run.py": "from lab.run import collect, start\nfrom lab import text\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("lab/run/collect.py", {"test_collect.py", "test_run.py"}),
        ("lab/run/__init__.py", {"test_run.py"}),
        ("lab/run/hidden.py", {"test_collect.py", "test_run.py"}),
        ("lab/run/view/lines.py", {"test_collect.py", "test_run.py"}),
        ("lab/run/removed.py", {"test_collect.py", "test_run.py"}),
        ("lab/text.py", {"test_run.py"}),
        ("lab/units.py", set()),
        ("tests/support/fakes.py", {"test_fakes.py"}),
        ("tests/unit/test_run.py", {"test_run.py"}),
        ("tests/unit/test_removed.py", set()),
        ("tests/e2e/test_run.py", set()),
        ("clusters/one.yaml", {"test_files.py"}),
        ("docs/how-to/faults.md", {"test_documents.py"}),
        ("data/unknown.bin", set()),
    ],
)
def test_the_tests_of_a_changed_file(project: Path, changed: str, tests: set[str]) -> None:
    assert quick.tests_of([changed], project) == {f"tests/unit/{name}" for name in tests}


def test_a_change_is_what_differs_from_the_main_branch(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        named = ["-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        subprocess.run(["git", *named], cwd=project, check=True, capture_output=True)

    monkeypatch.setattr(quick, "ROOT", project)
    git("init", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--message=One")
    assert quick.changes() == set()
    git("switch", "--create", "mine")
    (project / "lab/text.py").write_text("A = 1\n")
    git("commit", "--all", "--message=Two")
    (project / "lab/run/collect.py").unlink()
    (project / "naïve name").touch()
    assert quick.changes() == {"lab/text.py", "lab/run/collect.py", "naïve name"}
