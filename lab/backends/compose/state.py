"""Where the rendered file of an environment lies, so that it is known from any directory."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from lab.backends import locking
from lab.backends.locking import state_directory
from lab.task.files import write_atomically

_FILE: Final = "docker-compose.yml"


def base() -> Path:
    """Where all that is kept of environments of containers lies, for this user."""
    return state_directory() / "compose"


def locked(project: str, *, shared: bool = False) -> AbstractContextManager[int]:
    """Be the only one of this user that boots this environment or takes it down.

    Raises:
        LabError: Another process does so now.
    """
    path = base() / f"{project}.lock"
    return locking.locked(path, f"the environment {project!r} of containers", shared=shared)


def keep(project: str, text: str) -> Path:
    """Write the file that compose gets, atomically."""
    path = base() / project / _FILE
    write_atomically(path, text)
    return path


def forget(project: str) -> None:
    """Remove it; it may be gone already."""
    folder = base() / project
    (folder / _FILE).unlink(missing_ok=True)
    with suppress(OSError):  # there is none, or the user has put something there
        folder.rmdir()
