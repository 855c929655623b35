"""The tests of a program that a student writes, whatever it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.base.errors import InputError
from lab.checks import code
from lab.checks.code import run_tests
from lab.protocol import runtimes
from tests.support.agents import wait_for

TESTS = """
import unittest
import sums


class Sums(unittest.TestCase):
    def test_1_two(self):
        self.assertEqual(sums.add(1, 2), 3, "The sum of 1 and 2\\nis 3.")

    def test_2_nothing(self):
        self.assertEqual(sums.add(0, 0), 0, "Nothing is nothing.")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "course").mkdir()
    (tmp_path / "course/sums_tests.py").write_text(TESTS)
    (tmp_path / "experiments.yaml").write_text(
        "version: 1\nexperiments:\n  sums: {program: course/sums.py, summary: s, jobs: [worker],"
        " framework: tensorflow}\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("def add(a, b): return a + b", "2 of 2"),
        ("def add(a, b): return a * b", "1 of 2: The sum of 1 and 2 is 3."),
        ("def add(a, b): raise NotImplementedError('gap 1')", "gap: gap 1"),
        ("def add(a, b):\n  return a + c", "0 of 2: sums.py:2: NameError: name 'c' is not defined"),
        ("def add(a, b)\n  return a", "none: sums.py:1: SyntaxError: expected ':'"),
        ("import sys; sys.exit(3)", "none: sums.py:1: SystemExit: 3"),
        ("import os; os._exit(3)", "none: the tests ended early, with exit code 3"),
        ("print('2 of 2')\ndef add(a, b): assert a < 0", "0 of 2: sums.py:2: AssertionError: "),
        ("def add(a, b): assert a < 0, '\\x1b[2Jno\\x07'", r"0 of 2: no\x07"),
        ("def subtract(a, b): return a", "0 of 2: sums_tests.py:8: AttributeError: "),
    ],
)
def test_what_a_program_is_told(project: Path, program: str, said: str) -> None:
    (project / "course/sums.py").write_text(program)
    assert run_tests("sums", project).startswith(said)
    assert said.endswith(": ") or run_tests("sums", project) == said


CHILD = """
import signal, subprocess, sys
quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], **quiet)
open("child", "w").write(str(child.pid))
"""


def assert_child_is_ended(project: Path) -> None:
    stat = Path(f"/proc/{(project / 'child').read_text()}/stat")
    wait_for(lambda: not stat.exists() or ") Z" in stat.read_text(), "the child is ended")


def test_a_program_that_never_ends_is_stopped_with_what_it_started(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "SECONDS", 2.0)
    (project / "course/sums.py").write_text(f"{CHILD}signal.pause()\n")
    said = run_tests("sums", project)
    assert said == "none: the tests did not end within 2 s; is there an endless loop?"
    assert_child_is_ended(project)


def test_a_child_that_stays_is_ended(project: Path) -> None:
    (project / "course/sums.py").write_text(f"{CHILD}def add(a, b): return a + b\n")
    assert run_tests("sums", project) == "2 of 2"
    assert_child_is_ended(project)


def test_what_lacks_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "course/sums.py").touch()
    with pytest.raises(InputError, match="no experiment 'sum'; did you mean 'sums'"):
        run_tests("sum", project)
    monkeypatch.setattr(runtimes, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"TensorFlow 2\.21 is not installed"):
        run_tests("sums", project)
    (project / "course/sums_tests.py").unlink()
    with pytest.raises(InputError, match=r"there is no .*/course/sums_tests.py; `lab init"):
        run_tests("sums", project)
