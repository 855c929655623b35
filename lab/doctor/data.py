"""Checks of the data set, the config of this directory, the run store and the state directory."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.backends.local import state
from lab.doctor.model import Outcome, failed, ok, skipped, warning
from lab.errors import ConfigError, InputError, LabError
from lab.formatting import counted
from lab.placement.plan import Plan
from lab.store.directory import DEFAULT_RUNS_DIR
from lab.text import short
from lab.variables import LAB_RUNS_DIR, LAB_STATE

if TYPE_CHECKING:
    from lab.config import Cluster
    from lab.gpu import Inventory

MNIST: Final = Path(__file__).parents[1] / "datasets" / "mnist"
CHECKSUMS: Final = "SHA256SUMS"
READ_S: Final = 30.0
"""Time limit for reading 11 MB, because a file server may hang."""

RUNS_BYTES: Final = 10**9
MIN_BYTES: Final = 50 * 10**6
"""The free bytes that a single short run needs."""

CONFIG: Final = Path("cluster.yaml")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The config of this directory, and its plan.

    Attributes:
        path: Its file.
        cluster: The config; None if there is no file, or it is not valid.
        plan: The plan for this host, without GPUs if the host has too few; or None.
        error: Why the config is not valid, or cannot be placed as it is; None without an error.
    """

    path: Path
    cluster: Cluster | None = None
    plan: Plan | None = None
    error: LabError | None = None

    @property
    def gpus(self) -> int:
        """The number of GPUs that the config asks for."""
        return 0 if self.cluster is None else self.cluster.gpus_needed


def read_config(inventory: Inventory, path: Path = CONFIG) -> ConfigFile:
    """Read the config of this directory, and place it on this host."""
    # Imported here: the packages pydantic and ruamel.yaml may be missing.
    from lab.config import load_cluster  # noqa: PLC0415
    from lab.gpu import take_inventory  # noqa: PLC0415
    from lab.placement.place import place  # noqa: PLC0415

    if not path.exists():
        return ConfigFile(path)
    try:
        cluster = load_cluster(path)
    except InputError as error:
        return ConfigFile(path, error=error)
    cpus_only = take_inventory("none", cluster)
    try:
        return ConfigFile(path, cluster, place(cluster, inventory if inventory.gpus else cpus_only))
    except LabError as error:
        try:
            return ConfigFile(path, cluster, place(cluster, cpus_only), error)
        except LabError:
            return ConfigFile(path, cluster, None, error)


def judge_config(config: ConfigFile, inventory: Inventory) -> Outcome:
    """Check that the config is valid, and that the host can run it."""
    path, cluster, plan, error = config.path, config.cluster, config.plan, config.error
    if cluster is None:
        if error is None:
            return skipped(f"no {path} in this directory", stops=True)
        what, fix = error.what, error.fix
        if isinstance(error, ConfigError):
            what = f"{path} has {counted(len(error.problems), 'error')}"
            fix = "`lab validate` lists them"
        return warning(what, fix, stops=True)
    tasks = sum(len(job.on) for job in cluster.jobs.values())
    what = (
        f"{path}: {cluster.name}, {counted(len(cluster.nodes), 'node')}, {counted(tasks, 'task')}, "
        f"{counted(config.gpus, 'GPU')}"
    )
    if error is not None:
        return warning(f"{what}: {error.what}", error.fix, stops=plan is None)
    notices = list(plan.shortfalls) if plan is not None else []
    if config.gpus and not inventory.gpus:
        why = "; ".join(inventory.left_out) or "this host has no GPU"
        notices.insert(0, f"{why}: tasks train on CPUs")
    return ok(f"{what}; {short('; '.join(notices))}" if notices else what)


def verify_dataset(directory: Path = MNIST) -> tuple[int, int, str]:
    """Verify the checksums of MNIST's files.

    Returns:
        The number of files, their bytes, and the first error, or "".
    """
    try:
        lines = (directory / CHECKSUMS).read_text("ascii").splitlines()
    except (OSError, ValueError) as error:
        return 0, 0, f"{CHECKSUMS} cannot be read ({_reason(error)})"
    size = files = 0
    for line in filter(None, lines):
        digest, _, name = line.partition("  ")
        try:
            content = (directory / Path(name).name).read_bytes()
        except OSError as error:
            return files, size, f"{short(name)} cannot be read ({_reason(error)})"
        if hashlib.sha256(content).hexdigest() != digest:
            return files, size, f"{short(name)} is damaged: its SHA-256 is wrong"
        files, size = files + 1, size + len(content)
    return files, size, ""


def judge_dataset(dataset: tuple[int, int, str]) -> Outcome:
    """Check that the files of MNIST are complete and undamaged."""
    files, size, fault = dataset
    if fault:
        fix = "restore it with `git checkout -- lab/datasets/mnist`, or install lab again"
        return failed(fault, fix, "the data set")
    return ok(f"{files} files, {size / 10**6:.0f} MB, checksums correct")


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory that `lab` writes to.

    Attributes:
        path: Its path. It may not exist yet.
        existing: The directory itself, or its nearest parent that exists.
        fault: Why it cannot be written or created; "" if it can.
        free: The free bytes on its disk, for an ordinary user.
        name: What lab stores there.
        variable: The environment variable that sets another directory.
    """

    path: Path
    existing: Path
    fault: str
    free: int
    name: str
    variable: str


def runs_directory() -> Directory:
    """Return the directory of the run store."""
    path = Path(os.environ.get(LAB_RUNS_DIR) or DEFAULT_RUNS_DIR)
    return inspect_directory(path, "runs", LAB_RUNS_DIR)


def state_directory() -> Directory:
    """Return the directory with the state of environments."""
    return inspect_directory(state.StateDir.base().parent, "state", LAB_STATE)


def inspect_directory(path: Path, name: str, variable: str) -> Directory:
    """Find out whether a directory can be written, and the free space on its disk."""
    existing = path.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    fault = ""
    if not existing.is_dir():
        fault = f"{existing} is not a directory"
    elif not os.access(existing, os.W_OK | os.X_OK):
        fault = f"{existing} cannot be written"
    return Directory(path, existing, fault, shutil.disk_usage(existing).free, name, variable)


def judge_writable(directory: Directory) -> Outcome:
    """Check that `lab` can write to a directory."""
    if not directory.fault:
        return ok(str(directory.path.absolute()))
    return failed(
        short(directory.fault),
        f"fix its permissions (`ls -ld {directory.existing}`), "
        f"or name another directory in {directory.variable}",
        f"{directory.name} directory cannot be written",
    )


def judge_room(directory: Directory) -> Outcome:
    """Check that there is enough free space for runs and environments."""
    what = f"{directory.free / 10**9:.1f} GB free in {directory.existing}"
    fix = f"delete large files: `du -xh {directory.existing} | sort -h | tail` lists them"
    if directory.free < MIN_BYTES:
        return failed(what, fix, "the disk is full")
    return warning(what, fix) if directory.free < RUNS_BYTES else ok(what)


def local_environments() -> list[tuple[str, bool]]:
    """Return every recorded local environment, and whether its supervisor is alive."""
    records = [place.read() for place in state.StateDir.all()]
    return [(each.project, each.process.alive()) for each in records if each is not None]


def judge_environments(local_environments: Sequence[tuple[str, bool]]) -> Outcome:
    """Check that the supervisor of every local environment runs."""
    dead = [name for name, alive in local_environments if not alive]
    if dead:
        return warning(
            f"stopped, but not removed: {short(', '.join(dead))}",
            f"collect its runs and remove it: `lab down {short(dead[0])}`",
        )
    return ok(f"{len(local_environments)} up, see `lab ps`" if local_environments else "none")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "not a text file"
