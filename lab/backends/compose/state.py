"""Where the rendered file of an environment lies, so that it is known from any directory."""

from __future__ import annotations

import os
from pathlib import Path

from lab.task.protocol import write_atomically


def rendered_file(project: str) -> Path:
    """The file that `lab up` gave to compose: `<state>/compose/<project>/docker-compose.yml`."""
    state = os.environ.get("LAB_STATE")
    if state:
        base = Path(state)
    else:
        home = os.environ.get("XDG_STATE_HOME")
        base = (Path(home) if home else Path.home() / ".local" / "state") / "lab"
    return base.absolute() / "compose" / project / "docker-compose.yml"


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
