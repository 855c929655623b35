"""`lab` as a user calls it, in a project of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATIENCE_S = 300.0
KEPT = frozenset({"LAB_IMAGE", "LAB_BASE_IMAGE", "LAB_GPU_RECORD"})
"""Variables that name what the tests have built, and their own record of GPUs."""


def environ(project: Path) -> dict[str, str]:
    """The variables of a call: nothing of the caller's own `lab`, and a state directory there."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LAB_") or name in KEPT
    }
    return {**kept, "PYTHONPATH": str(ROOT), "LAB_STATE": str(project / "state")}


def command(*words: str) -> list[str]:
    """The arguments of a call."""
    return [sys.executable, "-m", "lab", *words]


def start(project: Path, *words: str) -> subprocess.Popen[str]:
    """Start a call in a project's directory."""
    return subprocess.Popen(
        command(*words),
        cwd=project,
        env=environ(project),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lab(project: Path, *words: str, code: int | None = 0) -> tuple[str, str]:
    """What a call says on its standard output and error, once it has ended with this code.

    Any code will do where it is None.
    """
    process = start(project, *words)
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert code is None or process.returncode == code, err[-4000:]
    return out, err
