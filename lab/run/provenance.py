"""What a run was made with: the commit, the versions, the seed; read without TensorFlow."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from lab import __version__

_PACKAGES: Final = ("tensorflow", "tensorflow-cpu", "numpy", "docker", "pyroute2")
_GIT_TIMEOUT_S: Final = 10


def versions() -> dict[str, str]:
    """Versions of lab, Python and the libraries that are installed on this side."""
    found = {"lab": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_state(root: Path) -> dict[str, Any] | None:
    """Commit and dirtiness of a directory; None outside a repository or without git."""
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": changes is None or bool(changes)}


def _git(root: Path, *words: str) -> str | None:
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_GIT_TIMEOUT_S
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
