"""Where this user's `lab` keeps what it knows of environments."""

from __future__ import annotations

import os
from pathlib import Path


def state_directory() -> Path:
    """`LAB_STATE`, or `lab` in the user's directory for states."""
    if state := os.environ.get("LAB_STATE"):
        return Path(state).absolute()
    home = os.environ.get("XDG_STATE_HOME")
    return ((Path(home) if home else Path.home() / ".local" / "state") / "lab").absolute()
