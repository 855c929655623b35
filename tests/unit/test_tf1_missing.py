"""The last line of a printed program that is missing."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import environ, python


def test_the_last_line_of_a_program_that_is_missing(tmp_path: Path) -> None:
    done = python("-m", "lab.task.tf1", "gone.py", cwd=tmp_path, env=environ(tmp_path))
    line = f"error: {tmp_path}/gone.py cannot be read (No such file or directory); check the path\n"
    assert (done.returncode, done.stderr) == (1, line)
