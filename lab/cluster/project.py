"""A project: its directory, its config, and the paths that the user names."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

from lab.base.errors import InputError
from lab.base.files import user_path
from lab.base.log import LOG
from lab.base.shipped import SHIPPED
from lab.cluster.config import Cluster, load_cluster, with_workers

AnyPath = str | os.PathLike[str]

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


def cluster_path(
    option: AnyPath | None = None,
    argument: AnyPath | None = None,
    *,
    default: str = DEFAULT_CLUSTER,
    shipped: bool = True,
) -> Path:
    """Return the path of the config: the one that the user names, or the default one.

    A relative path that does not exist here may name a shipped config: `clusters/book.yaml`. One
    line then says so. In a notebook, the default config may also be in a directory above.

    Args:
        option: The value of `--cluster`.
        argument: The file that the command line names without the flag, if the command allows it.
        default: The name of the config that is used if none is given.
        shipped: Whether a shipped config may be used.

    Raises:
        InputError: Both are given and differ, or there is none.
    """
    if option is not None and argument is not None and _real(option) != _real(argument):
        raise InputError(
            f"two configs are given: {argument} and --cluster {option}", "leave out one of them"
        )
    named = argument if option is None else option
    path, is_shipped = _located(named, default)
    if (named is None and not path.exists()) or (is_shipped and not shipped):
        raise InputError(
            f"no {named or default} in {Path.cwd()}",
            "write a project with `lab init`, or name a config with --cluster",
        )
    if is_shipped:
        LOG.info(
            f"{named or default} is missing: using the config and programs that come with lab;"
            " `lab init` writes your own"
        )
    return path


def _located(named: AnyPath | None, default: str = DEFAULT_CLUSTER) -> tuple[Path, bool]:
    """Return the path of a config, and whether it is a shipped one in place of a missing one."""
    name = Path(default if named is None else named)
    around = project_around(Path(DEFAULT_CLUSTER)) if named is None else None
    own = next((path for path in (name, (around or Path()) / name) if path.exists()), None)
    shipped = SHIPPED / name
    return (shipped, True) if own is None and shipped.is_file() else (own or name, False)


def default_name() -> str | None:
    """Return the name in the default config; None if that config is invalid."""
    try:
        return load_cluster(_located(None)[0]).name
    except (InputError, OSError):
        return None


def default_root() -> Path:
    """Return the directory of the project with the default config; see `find_root`."""
    return find_root(_located(None)[0])


def find_root(config: Path) -> Path:
    """Return the directory with the programs of a config.

    It is the nearest directory above the config with a `scripts/`, else that of the shipped files.
    """
    return project_around(config) or SHIPPED


def own_root(config: Path) -> Path:
    """Return the directory of a config's own project, never that of the shipped files.

    Raises:
        InputError: The config is in no project.
    """
    root = project_around(config)
    if root is None:
        raise InputError(
            f"no {SCRIPTS}/ in the directory of {config} or above it",
            "write a project with `lab init`",
        )
    return root


def project_around(config: Path) -> Path | None:
    """Return the nearest directory above a config that has a `scripts/`; None: there is none."""
    folders = Path(os.path.realpath(config)).parents  # `resolve` raises for a loop of links
    return next((folder for folder in folders if (folder / SCRIPTS).is_dir()), None)


def replace_files(root: Path, sources: Mapping[str, Path]) -> Path | None:
    """Replace files of a project by others, and keep the old ones.

    It follows no link below the project's directory: it keeps the link like an old file, and puts a
    directory in its place.

    Args:
        root: The project's directory.
        sources: Path in the project to the new file.

    Returns:
        The directory in the project with the old files; None: there are none.

    Raises:
        OSError: A file cannot be read or written, and nothing has changed; or a file cannot be
            moved.
    """
    changed = {name: path for name, path in sources.items() if not _is_same(path, root, name)}
    kept = _new_directory(root, "before-restore")
    with TemporaryDirectory(prefix=".restore-", dir=root) as folder:
        staged = Path(folder)
        for name, source in changed.items():
            (staged / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, staged / name)
        for name in changed:
            for parent in map(str, reversed(PurePosixPath(name).parents[:-1])):
                if os.path.lexists(root / parent) and not _is_directory(root / parent):
                    _move(root, kept, parent)
            if os.path.lexists(root / name):
                _move(root, kept, name)
            _move(staged, root, name)
    return kept if kept.exists() else None


def _move(source: Path, target: Path, name: str) -> None:
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    (source / name).rename(target / name)


def _new_directory(root: Path, begin: str) -> Path:
    """Return the path of a directory that does not exist yet."""
    name = f"{begin}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(root / candidate for candidate in names if not os.path.lexists(root / candidate))


def _is_directory(path: Path) -> bool:
    """Whether it is a directory, and not a link: the files behind a link are not the project's."""
    return path.is_dir() and not path.is_symlink()


def _is_same(source: Path, root: Path, name: str) -> bool:
    """Whether a file of the project has the content of `source`, and its path has no link."""
    path = PurePosixPath(name)
    is_linked = any((root / part).is_symlink() for part in (path, *path.parents[:-1]))
    target = root / name
    return not is_linked and target.is_file() and filecmp.cmp(source, target, shallow=False)


def check_data_dir(argument: str | None) -> Path | None:
    """Return the absolute path of the user's own data directory, or None.

    Args:
        argument: The path that the user typed, or None.

    Raises:
        InputError: The path is not a directory or cannot be read.
    """
    if argument is None:
        return None
    path = Path(_real(user_path(argument)))
    if not path.is_dir():
        raise InputError(
            f"--data_dir: {argument} is not a directory",
            "name the directory that contains the IDX files",
        )
    if not os.access(path, os.R_OK | os.X_OK):
        raise InputError(f"--data_dir: {argument} cannot be read", "change its permissions")
    return path


def _real(path: AnyPath) -> str:
    """Return the path without links; pathlib raises for a link that leads to itself."""
    return os.path.realpath(path)
