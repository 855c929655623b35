"""The command line, called as a user does, in this process and in its own."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from lab.cli import main
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol import RunSpec
from lab.task.protocol.states import State
from tests.support.agents import PATIENCE_S
from tests.support.fakes import PLAN

ROOT = Path(__file__).parents[2]

CLUSTER = """\
version: 1
name: mnist
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2]}}
"""


def environ(project: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "LAB_STATE": str(project / "state"),
        "DOCKER_HOST": f"unix://{project}/no-engine.sock",
        "DOCKER_CONFIG": str(project / "docker"),
        "COLUMNS": "80",
        **more,
    }


def lab(project: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A command, run in this process: to start a Python for each would take minutes in all."""
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        Path(os.devnull).open() as nothing,
        contextlib.chdir(project),
        mock.patch.dict(os.environ, environ(project, **more), clear=True),
        mock.patch("sys.stdin", nothing),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(words)
        output = [file.seek(0) or file.read() for file in (out, err)]
    return subprocess.CompletedProcess(words, code, *output)


def lab_process(project: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The same in a separate process."""
    return subprocess.run(
        [sys.executable, "-m", "lab", *words],
        cwd=project,
        env=environ(project, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """The only line on stderr of a command that did nothing."""
    assert done.returncode == code, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def on_a_terminal(project: Path, words: Sequence[str], timeout_s: float = 30) -> tuple[int, str]:
    """Run a command with a terminal for all streams, and without input."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(project)
        os.execve(  # noqa: S606
            sys.executable,
            [sys.executable, "-m", "lab", *words],
            environ(project, TERM="xterm", PAGER="less"),
        )
    shown = b""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                piece = os.read(terminal, 65536)
            except OSError:
                break  # the child has closed its terminal
            if not piece:
                break
            shown += piece
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail(f"it hangs: {shown!r}")
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode()


def make_run(project: Path, run_id: str, reason: str = "") -> None:
    info = RunInfo(
        run_id,
        RunSpec("async"),
        state=State.FAILED,
        reason=reason,
        cluster=PLAN.cluster_spec(),
        submitted_unix=1.0,
        collected=True,
    )
    RunDir(project / "runs" / run_id).create(info)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a config, and programs that report that they ran."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    for name in ("mnist_async.py", "mnist_sync.py"):
        (tmp_path / "scripts" / name).write_text("print('ran')\n")
    return tmp_path
