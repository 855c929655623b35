"""Which compose file an environment was made from, proved by compose itself."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.backends.compose.cli import compose_environment, docker
from lab.backends.compose.containers import Seen

TIMEOUT_S: Final = 30
"""Seconds that compose gets to compare; it needs one."""

_CHANGE: Final = re.compile(r"DRY-RUN MODE - .* (?:Recreate|Create|Creating|Removing)$", re.M)


def compose_file(project: str, seen: Sequence[Seen]) -> str | None:
    """The text of the file that these containers were made from.

    The containers' labels name the file. It may have been edited since, so compose is asked what
    it would have to change for the containers to be as the file says: only where that is nothing,
    the file is what really ran.

    Returns:
        None where the file is gone, unreadable or another one.
    """
    origins = {(each.file, each.folder) for each in seen if each.service}
    if len(origins) != 1:
        return None
    file, folder = origins.pop()
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text if _unchanged(project, file, folder, seen) else None


def _unchanged(project: str, file: str, folder: str, seen: Sequence[Seen]) -> bool:
    # The variables that the file may have been filled in with, as the containers know them.
    told = {name: value for each in seen for name, value in each.variables.items()}
    variables = {"LAB_IMAGE": seen[0].image_name}
    for name in ("LAB_EXPERIMENT", "LAB_FLAGS"):
        variables[name] = told.get(name, "")
    command = [
        *(docker(), "compose", "--ansi", "never", "--progress", "plain", "--dry-run"),
        *("--project-name", project, "--file", file, "--project-directory", folder),
        # Not the service that starts a run: it is no part of the environment.
        *("create", "--no-build", *(each.service for each in seen)),
    ]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=compose_environment() | variables,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return False
    return answer.returncode == 0 and not _CHANGE.search(answer.stdout)
