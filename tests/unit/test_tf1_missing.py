"""The last line of a printed program that is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.commands import environ


def test_the_last_line_of_a_program_that_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab.task.tf1", "gone.py"],
        cwd=tmp_path,
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    line = f"error: {tmp_path}/gone.py cannot be read (No such file or directory); check the path\n"
    assert (done.returncode, done.stderr) == (1, line)
