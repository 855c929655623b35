"""The Python that runs agents and programs as processes, and their environment variables."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from itertools import chain, islice
from pathlib import Path

import lab
from lab.base import variables as var
from lab.base.shipped import CLONE, install_command
from lab.cluster.placement.plan import Plan, PlannedTask
from lab.protocol.frameworks import FRAMEWORKS
from lab.protocol.runtimes import RUNTIMES, Runtime

# Variables that would change the behavior of an agent or of a program.
_DROPPED = {"TF_CONFIG", "PYTHONSAFEPATH"}
_PACKAGES = (*chain.from_iterable(spec.packages for spec in FRAMEWORKS.values()), "numpy")


def missing_runtimes() -> str | None:
    """Return why processes can run no framework here, with a hint; None if they can."""
    reasons = [missing_runtime(runtime, Path.cwd()) for runtime in RUNTIMES.values()]
    return None if None in reasons else reasons[0]


def python_of(plan: Plan, root: Path) -> str:
    """Return the Python with the plan's runtime: this one, or one in another environment."""
    return str(RUNTIMES[plan.runtime].python(root) or sys.executable)


def missing_python(plan: Plan, root: Path) -> str | None:
    """Return why no Python with the plan's runtime is here, with a hint; None if one is."""
    return missing_runtime(RUNTIMES[plan.runtime], root)


def missing_runtime(runtime: Runtime, root: Path) -> str | None:
    """Return why no Python with a runtime is here, with a hint; None if one is."""
    if runtime.python(root) is not None:
        return None
    if runtime.environment and CLONE is not None:
        fix = f"create {runtime.environment} with `make {runtime.target}`"
    elif runtime.extra:
        fix = f"install the extra `{runtime.extra}` with `{install_command(runtime.extra)}`"
    else:
        fix = f"use `--backend compose`, or `make {runtime.target}` in a clone of lab"
    return f"{runtime.title} is not installed for {sys.executable}; {fix}"


def module_command(module: str, python: str = sys.executable) -> list[str]:
    """Return the command line of a module; it imports nothing from the current directory."""
    return [python, "-P", "-m", module]


def base_environ() -> dict[str, str]:
    """Return this process's environment variables, with `lab` in PYTHONPATH."""
    environ = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    package_root = str(Path(lab.__file__).parents[1])
    paths = [package_root, *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def agent_environ(
    plan: Plan, task: PlannedTask, addresses: Sequence[str], *, root: Path, runs: Path
) -> dict[str, str]:
    """Return the environment variables of an agent that runs as a process of this host.

    Args:
        plan: The plan.
        task: The task of the agent.
        addresses: `host:port` of each task, in the plan's order.
        root: The project's directory.
        runs: The run volume.
    """
    fraction = task.gpu_memory_fraction
    return {
        var.LAB_PROJECT: plan.name,
        var.LAB_CLUSTER: json.dumps(plan.cluster_spec(addresses)),
        var.LAB_RUNS: str(runs),
        var.LAB_SCRIPTS: str(root / "scripts"),
        var.LAB_DATA: str(root / "data"),
        var.LAB_RUNTIME: plan.runtime,
        var.LAB_NODE: task.node,
        var.LAB_TASK: task.name,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(task.gpus) or "-1",
        **({} if fraction is None else {var.LAB_GPU_MEMORY_FRACTION: str(fraction)}),
    }


def versions(python: str) -> dict[str, str]:
    """Return the versions of the main packages that are installed for a Python."""
    installed = {"python": version} if (version := version_of(python)) else {}
    for name in _PACKAGES:
        for package in islice(metadata.distributions(name=name, path=_places(python)), 1):
            installed[package.name] = package.version
    return installed


def installed_packages(python: str) -> dict[str, str]:
    """Return the versions of all packages that are installed for a Python."""
    return {each.name: each.version for each in metadata.distributions(path=_places(python))}


def _places(python: str) -> list[str]:
    # The packages of another Python are read from its directory, without starting it.
    beside = Path(python).parents[1].glob("lib/python*/site-packages")
    return sys.path if python == sys.executable else [str(folder) for folder in beside]


def version_of(python: str) -> str:
    """Return the version of a Python, from its virtual environment if it is another one; or ""."""
    if python == sys.executable:
        return platform.python_version()
    try:
        text = Path(python).parents[1].joinpath("pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        return ""
    fields = dict(line.partition(" = ")[::2] for line in text.splitlines())
    return fields.get("version", "")
