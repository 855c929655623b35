"""The Python that runs agents and programs as processes, and their environment variables."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import lab
from lab.placement.plan import Plan
from lab.shipped import CLONE, install_command
from lab.tf_versions import IMAGES
from lab.variables import LAB_FORKSERVER, LAB_LEASH, LAB_STAMPS

# Variables that would change the behavior of an agent or of a program.
_DROPPED = {
    *(LAB_LEASH, LAB_FORKSERVER, LAB_STAMPS),
    *("TF_CONFIG", "PYTHONSAFEPATH"),
}
_PACKAGES = ("tensorflow", "tensorflow-cpu", "horovod", "numpy")


def missing_tensorflow() -> str | None:
    """Return why TensorFlow is missing for this Python, with a hint; None if it is installed."""
    if importlib.util.find_spec("tensorflow") is None:
        return (
            f"TensorFlow is not installed for {sys.executable};"
            f" install the extra `tensorflow` with `{install_command('tensorflow')}`"
        )
    return None


def python_of(plan: Plan, root: Path) -> str:
    """Return the Python with the plan's TensorFlow: this one, or one in another environment.

    Args:
        plan: The plan.
        root: The project's directory.
    """
    image = IMAGES[plan.tensorflow]
    found = image.python(root) if image.environment else None
    return str(found or sys.executable)


def missing_python(plan: Plan, root: Path) -> str | None:
    """Return why no Python with the plan's TensorFlow is here, with a hint; None if one is."""
    image = IMAGES[plan.tensorflow]
    if not image.environment or image.python(root) is not None:
        return None
    fix = f"create it with `make {image.target}`"
    if CLONE is None:
        fix = f"use `--backend compose`, or `make {image.target}` in a clone of lab"
    return f"there is no {image.environment} with TensorFlow {image.tensorflow}; {fix}"


def module_command(module: str, python: str = sys.executable) -> list[str]:
    """Return the command line of a module; it imports nothing from the current directory."""
    return [python, "-P", "-m", module]


def base_environ() -> dict[str, str]:
    """Return this process's environment variables, with `lab` in PYTHONPATH."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    package_root = str(Path(lab.__file__).parents[1])
    paths = [package_root, *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    return {**kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def versions(python: str) -> dict[str, str]:
    """Return the versions of the main packages that are installed for a Python."""
    # The packages of another Python are read from its directory, without starting it.
    beside = Path(python).parents[1].glob("lib/python*/site-packages")
    where = sys.path if python == sys.executable else [str(folder) for folder in beside]
    found = (metadata.distributions(name=name, path=where) for name in _PACKAGES)
    firsts = (next(iter(each), None) for each in found)
    own = {"python": platform.python_version()} if python == sys.executable else {}
    return own | {each.name: each.version for each in firsts if each is not None}
