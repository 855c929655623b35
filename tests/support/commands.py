"""Calls of `lab` as a user makes them, each in its own project."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300.0
Done = subprocess.CompletedProcess[str]
KEPT = frozenset({"LAB_IMAGE", "LAB_BASE_IMAGE", "LAB_GPU_RECORD"})
"""Variables that name what the tests have built, and their own record of GPUs."""


def environ(project: Path) -> dict[str, str]:
    """The variables of a call: none of the caller's `lab`, and a state directory in the project."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LAB_") or name in KEPT
    }
    return {**kept, "PYTHONPATH": str(ROOT), "LAB_STATE": str(project / "state")}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lab", *arguments]


def start(project: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start a call in a project's directory, with further variables."""
    return subprocess.Popen(
        command(*arguments),
        cwd=project,
        env={**environ(project), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lab(project: Path, *arguments: str, code: int | None = 0, **variables: str) -> tuple[str, str]:
    """The standard output and error of a call, with further variables, that ends with this code.

    With None any code is accepted.
    """
    return end(start(project, *arguments, **variables), code)


def end(process: subprocess.Popen[str], code: int | None = 0) -> tuple[str, str]:
    """The same of a call that was started; it ends within the time limit, or is killed."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert code is None or process.returncode == code, err[-4000:]
    return out, err


def only_run(project: Path) -> dict[str, Any]:
    """The recorded facts of the only run."""
    (path,) = (project / "runs").glob("*/run.json")
    return dict(json.loads(path.read_text()))


def until(process: subprocess.Popen[str], text: str) -> None:
    """Read a command's standard error up to a text."""
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return
    raise AssertionError("".join(lines))


def call(project: Path, *command: str | Path, **variables: str) -> str:
    """The standard output of another program in a project; it must succeed."""
    done = run_command(command, cwd=project, env={**environ(project), **variables})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def run_command(
    words: Sequence[str | Path], *, timeout: float = PATIENCE_S, check: bool = False, **options: Any
) -> Done:
    """A command that has ended, without input unless the options of `subprocess.run` have it."""
    if "input" not in options:
        options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(
        words, capture_output=True, text=True, timeout=timeout, check=check, **options
    )


def python(*words: str | Path, **options: Any) -> Done:
    """The same with this Python."""
    return run_command([sys.executable, *words], **options)


def free_port() -> int:
    """The first of three consecutive free ports, where tasks share the loopback.

    Tests that run in several processes take their ports from different ranges.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for port in range(23000 + 2000 * worker, 40000, 7):
        sockets = [socket.socket() for _ in range(3)]
        try:
            for offset, each in enumerate(sockets):
                each.bind(("", port + offset))
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
        return port
    raise AssertionError("no free ports")
