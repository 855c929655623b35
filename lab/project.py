"""A project: its directory, its config, and the paths that the user names."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lab.config import Cluster, load_cluster, with_workers
from lab.errors import InputError

DEFAULT_CLUSTER: Final = "cluster.yaml"
SCRIPTS: Final = "scripts"


@dataclass(frozen=True, slots=True)
class Project:
    """A config, and the directory with the programs that its tasks run.

    Attributes:
        cluster: The config.
        path: Its file; None for a config in memory.
        root: The project's directory.
    """

    cluster: Cluster
    path: Path | None
    root: Path

    @classmethod
    def load(cls, cluster_file: str | None) -> Project:
        """Read the config that the user names, or `cluster.yaml` in this directory.

        Raises:
            InputError: The file does not exist, is invalid, or is not in a project.
        """
        path = cluster_path(cluster_file)
        return cls(load_cluster(path), path, find_root(path))

    @property
    def config_name(self) -> str:
        """The name of the config in messages: its path, or its name if it has no file."""
        return str(self.path or self.cluster.name)

    def with_workers(self, count: int | None) -> Project:
        """Return the project with another number of workers; None: as in the config.

        Raises:
            InputError: The config has no workers, or the number does not fit.
        """
        return self if count is None else replace(self, cluster=with_workers(self.cluster, count))


def cluster_path(given: str | None, argument: str | None = None) -> Path:
    """Return the path of the config: the one of the flag, or `cluster.yaml` in this directory.

    Args:
        given: The value of `--cluster`.
        argument: The file that the command line names without the flag, if the command allows it.

    Raises:
        InputError: There is no config, or both are given and differ.
    """
    if given is not None and argument is not None and _real(given) != _real(argument):
        raise InputError(
            f"two configs are given: {argument} and --cluster {given}", "leave out one of them"
        )
    given = argument if given is None else given
    path = Path(given or DEFAULT_CLUSTER)
    if given is None and not path.exists():
        raise InputError(
            f"no {DEFAULT_CLUSTER} in {Path.cwd()}",
            "change to the project's directory, or name a config with --cluster",
        )
    return path


def default_config(name: str = DEFAULT_CLUSTER) -> Path:
    """Return the config of this directory, or of the project that contains it.

    A notebook runs in a subdirectory of its project.

    Raises:
        InputError: There is none.
    """
    here = Path(name)
    if here.exists():
        return here
    with suppress(InputError):  # the error below names what the user needs
        around = find_root(Path(DEFAULT_CLUSTER)) / name
        if around.exists():
            return around
    return cluster_path(None if name == DEFAULT_CLUSTER else name)


def default_name() -> str | None:
    """Return the name in this project's config; None if the config is missing or invalid."""
    try:
        return load_cluster(default_config()).name
    except (InputError, OSError):
        return None


def find_root(config: Path) -> Path:
    """Return the project's directory: the nearest one above the config with a `scripts/`.

    Raises:
        InputError: No directory above the config has a `scripts/`.
    """
    for folder in config.resolve().parents:
        if (folder / SCRIPTS).is_dir():
            return folder
    raise InputError(
        f"no {SCRIPTS}/ in the directory of {config} or above it",
        "move the config into a project's directory",
    )


def user_path(argument: str) -> Path:
    """Return the path that a user typed: `~` and `~name` become home directories if they exist."""
    return Path(os.path.expanduser(argument))  # noqa: PTH111  (pathlib raises for unknown users)


def check_data_dir(given: str | None) -> Path | None:
    """Return the absolute path of the user's own data directory, or None.

    Args:
        given: The path that the user typed, or None.

    Raises:
        InputError: The path is not a directory or cannot be read.
    """
    if given is None:
        return None
    path = Path(_real(user_path(given)))
    if not path.is_dir():
        raise InputError(
            f"--data_dir: {given} is not a directory", "name the directory with the IDX files"
        )
    if not os.access(path, os.R_OK | os.X_OK):
        raise InputError(f"--data_dir: {given} cannot be read", "change its permissions")
    return path


def _real(path: str | Path) -> str:
    """Return the path without links; pathlib would raise for a link that leads to itself."""
    return os.path.realpath(path)
