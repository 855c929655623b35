"""A process without standard input, output or error: the right exit code, one line at most."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.commands import environ, run_command

CLUSTER = "version: 1\nname: x\nnodes: {a: {}}\njobs: {ps: {on: [a]}, worker: {on: [a]}}\n"


@pytest.mark.parametrize("stdout", ["", ">&-", ">/dev/full"])
@pytest.mark.parametrize("stderr", ["", "2>&-", "2>/dev/full"])
@pytest.mark.parametrize("arguments", ["--version", "validate"])
def test_without_some_streams_the_exit_code_is_right(
    tmp_path: Path, arguments: str, stdout: str, stderr: str
) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    line = f'"{sys.executable}" -m lab {arguments} <&- {stdout} {stderr}'
    # Without a buffer the interpreter has nothing to flush at its end.
    buffered = {k: v for k, v in environ(tmp_path).items() if k != "PYTHONUNBUFFERED"}
    done = run_command(["bash", "-c", line], cwd=tmp_path, env=buffered)
    prints = arguments == "--version"  # the other one prints everything on its error output
    assert done.returncode == (1 if prints and stdout else 0)
    lines = 0 if stderr else 1 if stdout or not prints else 0
    assert len(done.stderr.splitlines()) == lines
    if prints and stdout == ">&-":
        closed = "error: stdout is closed; redirect it to a file, or to /dev/null\n"
        assert done.stderr == closed * lines
