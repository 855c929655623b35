"""What the functions take: configs, the flags of programs, and calls from the main thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from lab.backends.environment import Environment
from lab.backends.registry import backends, options_of
from lab.backends.selection import check_folder, resolve
from lab.base.errors import ConfigError, InputError, LabError
from lab.base.options import Flag, read_value
from lab.base.text import suggestion
from lab.cluster.config import Cluster, load_cluster
from lab.cluster.experiments import experiment_named
from lab.cluster.placement.plan import Plan
from lab.cluster.project import (
    DEFAULT_CLUSTER,
    AnyPath,
    Project,
    cluster_path,
    default_root,
    find_root,
)
from lab.programs import names_a_program
from lab.runner.discovery import name_here
from lab.runner.planning import make_plan
from lab.runner.prepared import PlaceOptions

__all__ = ["Cluster", "ConfigError", "InputError", "LabError", "Plan"]  # for `import lab`


Config = Annotated[
    Cluster | AnyPath | None, Flag("the cluster config (default: cluster.yaml)", shows="FILE")
]
"""A config, or its file; None: the project's default config."""


def load(path: AnyPath) -> Cluster:
    """Read a cluster config.

    Raises:
        InputError: The file does not exist or cannot be read.
        ConfigError: The config has errors; the message lists all of them.
    """
    return load_cluster(Path(path))


def plan(cluster: Cluster | AnyPath | None = None, gpus: str = "none") -> Plan:
    """Plan the node, GPUs and CPUs of each task; start nothing.

    Args:
        cluster: The config, or its file; None: the project's `cluster.yaml`.
        gpus: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.

    Raises:
        InputError: The config or the mode is invalid.
        LabError: The host is too small, or its driver does not answer.
    """
    return make_plan(project(cluster).cluster, gpus).plan


def project(cluster: Cluster | AnyPath | None, default: str = DEFAULT_CLUSTER) -> Project:
    """Return a config with the project that it belongs to.

    Args:
        cluster: The config, or its file; None: the project's default config.
        default: The path of the default config in the project.

    Raises:
        InputError: The file does not exist or is invalid.
    """
    if isinstance(cluster, Cluster):
        return Project(cluster, None, find_root(Path(DEFAULT_CLUSTER)))
    path = cluster_path(cluster, default=default)
    return Project(load_cluster(path), path, find_root(path))


def program_args(
    experiment: str, flags: Mapping[str, object], *, module: bool = False
) -> tuple[str, ...]:
    """Return the arguments of an experiment's program: `--epochs=3`.

    Args:
        experiment: The experiment, or the path of the user's own program, whose flags are unknown.
        flags: Name to value; True or False for a switch.
        module: Whether it is the name of the user's own module.

    Raises:
        InputError: The experiment or the flag does not exist, or the value is invalid.
    """
    if module or names_a_program(experiment):
        for name, value in flags.items():
            raise InputError(
                f"run() has no argument {name!r}, and the flags of {Path(experiment).name}"
                " are not known",
                f"pass it as args=[{f'--{name}={value}'!r}]",
            )
        return ()
    known = experiment_named(experiment, default_root()).flags
    arguments = []
    for name, value in flags.items():
        flag = known.get(name)
        if flag is None:
            raise InputError(
                f"{experiment!r} has no flag {name!r}",
                f"{suggestion(name, known)}see `lab experiments {experiment}`",
            )
        raw = str(value).lower() if isinstance(value, bool) else str(value)
        parsed = read_value(name, flag.parse, raw)
        if not flag.is_switch:
            arguments.append(f"--{name}={raw}")
        elif parsed is True:
            arguments.append(f"--{name}")
    return tuple(arguments)


def place_options(given: Mapping[str, Any]) -> PlaceOptions:
    """Return where runs are made, from the options of a verb.

    Raises:
        InputError: The backend has no such option.
    """
    return PlaceOptions(
        backend=given["backend"],
        own=options_of(given["backend"], given["option"]),
        gpus=given["gpus"],
        share=given.get("share", False),
    )


def check_main_thread(name: str) -> None:
    """Check that this is the main thread, which receives Ctrl-C.

    Raises:
        LabError: It is another thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise LabError(f"`{name}()` must be called from the main thread", "call it from there")


def find_environment(name: str | None) -> Environment:
    """Find the environment of this name, or the one of this directory.

    Raises:
        InputError: No environment matches, or several do, or no name is given and the only one was
            booted in another directory.
    """
    root = default_root()
    environment = resolve(name, name_here() if name is None else None, backends(), root)
    if name is None:
        check_folder(environment, root)
    return environment
