"""The real `docker compose config`, which needs no engine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.engine import compose_binary

ROOT = Path(__file__).parents[2]


def config(file: Path, *, folder: Path = ROOT, **variables: str) -> dict[str, Any]:
    """A compose file as compose itself reads it.

    Args:
        file: The file.
        folder: The directory of relative paths in the file.
        variables: The caller's environment beside PATH.
    """
    where = ["--project-directory", str(folder), "-f", str(file)]
    answer = subprocess.run(
        [compose_binary(), *where, "config", "--format", "json"],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "level=warning" not in answer.stderr, answer.stderr
    loaded: dict[str, Any] = json.loads(answer.stdout)
    return loaded
