"""The command that starts this lab, as the user can type it."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

_COMMAND: Final = re.compile(r"`lab (?=[a-z-])")
"""The beginning of a command in a message."""


def command_name() -> str:
    """Return `lab` if the shell finds it, else its path, else the Python with `-m lab`."""
    script = Path(sys.executable).with_name("lab")
    in_path = shutil.which("lab")
    if in_path is not None and Path(in_path) == script:
        return "lab"
    return _path(script) if script.exists() else f"{_path(Path(sys.executable))} -m lab"


def with_command_name(line: str) -> str:
    """Return a message whose commands in backquotes can be copied and run as they are."""
    return _COMMAND.sub(lambda _: f"`{command_name()} ", line)


def _path(path: Path) -> str:
    """Return a path for the shell: relative and with a slash, if it is below this directory."""
    with contextlib.suppress(OSError):  # this directory was removed
        if path.parent.parent.is_relative_to(Path.cwd()):
            path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))
