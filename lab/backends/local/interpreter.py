"""How this very Python starts a module of `lab` in another process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import lab

# What would make an agent do something of its own accord, or mislead a program.
_DROPPED = ("LAB_EXPERIMENT", "LAB_FLAGS", "LAB_LEASH", "LAB_STAMPS", "TF_CONFIG", "PYTHONSAFEPATH")


def command(module: str) -> list[str]:
    """The command line; nothing that lies in the current directory is imported instead."""
    return [sys.executable, "-P", "-m", module]


def environ() -> dict[str, str]:
    """This process's environment variables, in which `lab` can be imported."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    home = str(Path(lab.__file__).parents[1])
    paths = [home, *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    return {**kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
