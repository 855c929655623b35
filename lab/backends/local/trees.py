"""Removing what programs have written: directories inside each other to any depth."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.errors import LabError


def remove_tree(path: Path) -> None:
    """Remove a file, or a directory with all that is below it.

    By `rm`, because Python's own functions call themselves for each directory and end at a depth
    of some hundred.

    Raises:
        LabError: Something is left.
    """
    done = subprocess.run(
        ["rm", "-rf", "--", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = " ".join(done.stderr.strip().splitlines()[-1:])
        raise LabError(f"{path} cannot be removed: {last}", "remove it by hand")
