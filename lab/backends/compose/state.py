"""Where the rendered file of an environment lies, so that it is known from any directory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from lab.backends import locking
from lab.backends.locking import state_directory
from lab.task.files import write_atomically


def base() -> Path:
    """Where all that is kept of environments of containers lies, for this user."""
    return state_directory() / "compose"


def rendered_file(project: str) -> Path:
    """The file that `lab up` gave to compose: `<state>/compose/<project>/docker-compose.yml`."""
    return base() / project / "docker-compose.yml"


def locked(project: str, *, shared: bool = False) -> AbstractContextManager[int]:
    """Be the only one of this user that boots this environment or takes it down.

    Raises:
        LabError: Another process does so now.
    """
    path = base() / f"{project}.lock"
    return locking.locked(path, f"the environment {project!r} of containers", shared=shared)


def keep(project: str, text: str) -> Path:
    """Write it, atomically."""
    path = rendered_file(project)
    write_atomically(path, text)
    return path


def forget(project: str) -> None:
    """Remove it; it may be gone already."""
    path = rendered_file(project)
    path.unlink(missing_ok=True)
    if path.parent.is_dir() and not any(path.parent.iterdir()):
        path.parent.rmdir()
