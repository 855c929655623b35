"""This host, and the checks of what every backend needs of it.

It imports without any package, also to say which one is missing.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.backends.checks import Check, Host, Outcome, failed, ok, warning
from lab.base.errors import LabError
from lab.base.formatting import counted
from lab.base.shipped import CLONE, DISTRIBUTION, install_command
from lab.base.text import short
from lab.base.units import memory_for_people
from lab.base.variables import LAB_RUNS_DIR, LAB_STATE

if TYPE_CHECKING:
    from lab.cluster.placement.plan import Plan

TASK_BYTES: Final = 750 * 2**20
"""Memory of one task that trains MNIST, with TensorFlow and its data; measured: 742 MiB."""

RUNS_BYTES: Final = 10**9
MIN_BYTES: Final = 50 * 10**6
"""The free bytes that a single short run needs."""


def examine_host(config: Path) -> Host:
    """Ask the driver for its GPUs, and place the config of this directory.

    Raises:
        InputError: `LAB_GPUS` is invalid.
    """
    # Imported here: packages may be missing.
    from lab.cluster.config import load_cluster  # noqa: PLC0415
    from lab.cluster.gpu import Inventory, NvmlError, read_host, take_inventory  # noqa: PLC0415
    from lab.cluster.placement.place import place  # noqa: PLC0415

    try:
        inventory = read_host()
    except NvmlError as error:
        inventory = Inventory("none", (), None, None, faults=(error.fault,))
    try:
        cluster = load_cluster(config)
    except LabError:  # `lab validate` says what is wrong
        return Host(inventory)
    for offered in (inventory, take_inventory("none", cluster)):
        with suppress(LabError):
            return Host(inventory, place(cluster, offered), cluster.gpus_needed > 0)
    return Host(inventory, None, cluster.gpus_needed > 0)


def checks(plan: Plan | None, *, runs: Path, state: Path) -> Iterator[Check]:
    """Yield the checks of what every backend needs.

    Args:
        plan: The config's plan, or None.
        runs: The directory of the run store.
        state: The directory with the state of environments.
    """
    yield Check("memory", partial(check_memory, 1 if plan is None else len(plan.tasks)))
    yield Check("runs directory", partial(check_directory, runs, LAB_RUNS_DIR))
    yield Check("state directory", partial(check_directory, state, LAB_STATE))


def requirements() -> Sequence[str]:
    """Return the requirements of `lab`: those of the clone, or of the installed package."""
    if CLONE is None:
        return metadata.requires(DISTRIBUTION) or []
    project = tomllib.loads((CLONE / "pyproject.toml").read_text("utf-8"))["project"]
    return [str(requirement) for requirement in project["dependencies"]]


def installed(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_packages(
    required: Sequence[str], version_of: Callable[[str], str | None] = installed
) -> Outcome:
    """Check that packages are installed at the required versions.

    Args:
        required: Requirements, as `pyproject.toml` lists them.
        version_of: Returns the installed version of a package.
    """
    fix = f"`{install_command()}`"
    try:
        # Imported here: the package may be missing.
        from packaging.requirements import Requirement  # noqa: PLC0415
    except ModuleNotFoundError:
        return failed("packaging is missing", fix, stops=True)
    needed = [
        requirement
        for requirement in map(Requirement, required)
        if not requirement.marker or requirement.marker.evaluate({"extra": ""})
    ]
    faults = []
    for requirement in needed:
        version = version_of(requirement.name)
        if version is None:
            faults.append(f"{requirement.name} is missing")
        elif not requirement.specifier.contains(version, prereleases=True):
            faults.append(f"{requirement.name} {version} is not {requirement.specifier}")
    if faults:
        return failed(short("; ".join(faults)), fix, stops=True)
    return ok(f"all {len(needed)}, at the required versions")


def check_memory(tasks: int) -> Outcome:
    """Check that a number of tasks fits into the available memory."""
    import psutil  # noqa: PLC0415  (it may be missing)

    memory = psutil.virtual_memory()
    wanted = tasks * TASK_BYTES
    what = f"{memory_for_people(memory.available)} of {memory_for_people(memory.total)} available"
    if memory.available >= wanted:
        return ok(what)
    return warning(
        f"{what}; {counted(tasks, 'task')} with TensorFlow need about {memory_for_people(wanted)}",
        "stop other programs (`ps aux --sort=-rss | head` lists them), or use a config with fewer "
        "tasks",
    )


def check_directory(directory: Path, variable: str) -> Outcome:
    """Check that `lab` can write to a directory, and that its disk has room.

    Args:
        directory: The directory. It may not exist yet.
        variable: The environment variable that names another one.
    """
    path = directory.absolute()
    existing = next(each for each in (path, *path.parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return failed(
            f"{short(str(existing))} is not a directory that this user can write to",
            f"fix it (`ls -ld {short(str(existing))}`), or name another directory in {variable}",
        )
    free = shutil.disk_usage(existing).free
    what = f"{short(str(path))}, with {free / 10**9:.1f} GB free"
    fix = f"delete large files: `du -xh {short(str(existing))} | sort -h | tail` lists them"
    if free < MIN_BYTES:
        return failed(what, fix)
    return warning(what, fix) if free < RUNS_BYTES else ok(what)
