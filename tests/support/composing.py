"""The real `docker compose config`, which needs no engine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.support.commands import run_command
from tests.support.engine import compose_binary

ROOT = Path(__file__).parents[2]


def config(file: Path, *, folder: Path = ROOT, **variables: str) -> dict[str, Any]:
    """A compose file as compose itself reads it."""
    where = ["--project-directory", str(folder), "-f", str(file)]
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables}
    answer = run_command([compose_binary(), *where, "config", "--format", "json"], env=env)
    assert answer.returncode == 0, answer.stderr
    assert "level=warning" not in answer.stderr, answer.stderr
    return json.loads(answer.stdout)
