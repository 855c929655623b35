"""A process without standard input, output or error: the right exit code, one line at most."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from lab.cli import main
from tests.support.commands import environ

CLUSTER = "version: 1\nname: x\nnodes: {a: {}}\njobs: {ps: {on: [a]}, worker: {on: [a]}}\n"


def test_standard_output_that_is_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(os.devnull) as reading:  # noqa: PTH123
        closed = open(reading.fileno(), "w", closefd=False)  # noqa: SIM115
        monkeypatch.setattr(sys, "stdout", closed)
        assert main(["--version"]) == 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), reading.fileno())
        closed.close()
    expected = "error: stdout is closed; redirect it to a file, or to /dev/null\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("stdin", "stdout", "stderr"),
    [*product(("", "<&-"), ("", ">&-", ">/dev/full"), ("", "2>&-", "2>/dev/full"))],
)
@pytest.mark.parametrize("arguments", ["--version", "validate"])
def test_streams_in_every_combination(
    tmp_path: Path, arguments: str, stdin: str, stdout: str, stderr: str
) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    line = f'"{sys.executable}" -m lab {arguments} {stdin} {stdout} {stderr}'
    # Without a buffer the interpreter has nothing to flush at its end.
    buffered = {k: v for k, v in environ(tmp_path).items() if k != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        env=buffered,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    prints = arguments == "--version"  # the other one prints everything on its error output
    assert done.returncode == (1 if prints and stdout else 0)
    assert len(done.stderr.splitlines()) == (0 if stderr else 1 if stdout or not prints else 0)
