"""How this very Python starts a module of `lab` in another process."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import lab

# What would make an agent do something of its own accord, or mislead a program.
_DROPPED = (
    "LAB_EXPERIMENT",
    "LAB_FLAGS",
    "LAB_LEASH",
    "LAB_NURSERY",
    "LAB_STAMPS",
    "TF_CONFIG",
    "PYTHONSAFEPATH",
)

_PACKAGES = ("tensorflow", "tensorflow-cpu", "horovod", "numpy")


def command(module: str, python: str = sys.executable) -> list[str]:
    """The command line; nothing that lies in the current directory is imported instead."""
    return [python, "-P", "-m", module]


def versions(python: str) -> dict[str, str]:
    """The versions of what counts among that which is installed for a Python."""
    # Another Python's packages lie beside it: it need not be started to be asked.
    beside = Path(python).parents[1].glob("lib/python*/site-packages")
    where = sys.path if python == sys.executable else [str(folder) for folder in beside]
    found = (metadata.distributions(name=name, path=where) for name in _PACKAGES)
    firsts = (next(iter(each), None) for each in found)
    versions = {each.name: each.version for each in firsts if each is not None}
    own = {"python": platform.python_version()} if python == sys.executable else {}
    return own | versions


def environ() -> dict[str, str]:
    """This process's environment variables, in which `lab` can be imported."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    home = str(Path(lab.__file__).parents[1])
    paths = [home, *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    return {**kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
