"""Selects a backend, or an environment that is up."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab.backends.base import Backend
from lab.backends.names import AUTO, BUILT_IN, capabilities
from lab.base.errors import InputError, LabError
from lab.base.image_digest import digest
from lab.base.log import LOG
from lab.cluster.placement.plan import Plan

if TYPE_CHECKING:
    # `lab render` imports this module, and needs no environment.
    from lab.backends.environment import Environment

Folders = Callable[[str], Sequence[str]]
"""Returns the directories of the environments with a name; "" for an unknown one."""

_LONGEST_NAME = 26  # characters of a config's name before the directory's own part


def name_of(name: str, root: Path, folders: Folders) -> str:
    """Return the name of a directory's environment.

    It is the name in the config. If only other directories have an environment of that name, the
    directory gets a name of its own, with digits from its path: `mnist-1a2b`. It keeps that name as
    long as it has such an environment.

    Args:
        name: The name in the config.
        root: The project's directory.
        folders: Returns the directories of the environments with a name.
    """
    digits = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:4]
    own = f"{name[:_LONGEST_NAME]}-{digits}"
    if folders(own):
        return own
    others = folders(name)
    is_free = not others or any(is_same_folder(folder, root) for folder in others)
    return name if is_free else own


def named(plan: Plan, root: Path, folders: Folders) -> Plan:
    """Return the plan of a config with the name of the directory's environment; see `name_of`.

    A line says which directory has the name in the config.
    """
    name = name_of(plan.name, root, folders)
    if name != plan.name and (others := folders(plan.name)):
        LOG.info(f"environment {plan.name!r} belongs to {others[0]}; this directory's is {name!r}")
    return replace(plan, name=name)


def folders_on(known: Sequence[Backend]) -> Folders:
    """Return what finds the directories of environments on these backends; see `name_of`."""
    usable = list(_usable(known))

    def folders(project: str) -> list[str]:
        found = (backend.find_any(project) for backend in usable)
        return [environment.folder for environment in found if environment is not None]

    return folders


def choose(
    name: str, plan: Plan, root: Path, known: Sequence[Backend]
) -> tuple[Backend, Environment | None, Plan]:
    """Choose the environment that is up, else the first backend that can boot the plan.

    `auto` takes containers if the plan has GPUs, if their image is built, or if TensorFlow is
    missing here; otherwise processes. It never chooses a backend with a queue, or a plug-in.

    Args:
        name: `auto`, or a backend's name.
        plan: The plan, with the name in the config.
        root: The project's directory.
        known: The backend of this name; for `auto` all backends, the preferred one first.

    Returns:
        The backend, its environment if that is up, and the plan with the environment's name.

    Raises:
        LabError: The requested backend cannot be used here, or no backend can.
    """
    reasons: dict[str, str] = {}
    usable: list[Backend] = []
    for backend in known:
        if name in {AUTO, backend.name}:
            reason = backend.obstacle()
            if reason is None:
                usable.append(backend)
            elif name == backend.name or not capabilities(backend.name).queued:
                reasons[backend.name] = reason
    plan = named(plan, root, folders_on(usable))
    for backend in usable:
        environment = backend.find(plan.name)
        if environment is not None:
            LOG.info(f"backend {backend.name}: environment {plan.name!r} is up")
            return backend, environment, plan
    candidates = usable
    if name == AUTO:
        own = [backend for backend in usable if backend.name in BUILT_IN]
        candidates = [backend for backend in own if not capabilities(backend.name).queued]
        if not plan.has_gpus:
            candidates.sort(key=lambda backend: backend.must_build(plan, root=root))
    for backend in candidates:
        reason = backend.missing_image(plan, root=root)
        if reason is None:
            why = "as requested" if name != AUTO else _why(backend.name, reasons, plan)
            LOG.info(f"backend {backend.name}: {why}")
            return backend, None, plan
        reasons[backend.name] = reason
    for backend in usable:
        reasons.setdefault(backend.name, f"request it with `--backend {backend.name}`")
    raise LabError(", ".join(f"backend {key}: {reason}" for key, reason in reasons.items()))


def check_compatible(environment: Environment, plan: Plan, config: str, root: Path) -> None:
    """Check that an environment was booted in this project from the current plan.

    Args:
        environment: An environment with the plan's name.
        plan: The plan.
        config: The path of the config, for the message.
        root: This project's directory.

    Raises:
        InputError: It was booted from another directory or from another version of the config, or
            has another runtime or another version of lab's code.
        LabError: The environment's backend does not answer.
    """
    name = f"environment {environment.project!r} ({environment.backend})"
    again = f"run `lab down {environment.project}`, then try again"
    check_folder(environment, root)
    if environment.cluster_sha256 != plan.cluster_sha256:
        raise InputError(
            f"{name} was booted from another version of {config}",
            f"undo the change to the config, or {again}",
        )
    if environment.runtime != plan.runtime:
        raise InputError(
            f"{name} has {environment.runtime}, but {plan.runtime} is needed",
            again,
        )
    if environment.sources_sha256 != digest():
        raise InputError(f"{name} has a different version of lab's code", again)


def check_folder(environment: Environment, root: Path) -> None:
    """Check that an environment that no one has named was booted in this project.

    Raises:
        InputError: It was booted in another project.
    """
    if not is_same_folder(environment.folder, root):
        raise InputError(
            f"environment {environment.project!r} ({environment.backend}) was booted from"
            f" {environment.folder}, not from here",
            "run this command there, or boot one here with `lab up`",
        )


def is_same_folder(folder: str, root: Path) -> bool:
    """Whether an environment's directory is the project's; an unknown one, "", counts, too."""
    return not folder or Path(folder).resolve() == root.resolve()


def list_running(known: Sequence[Backend]) -> list[Environment]:
    """List all environments that are up, on all usable backends."""
    return [environment for backend in _usable(known) for environment in backend.all()]


def list_all(known: Sequence[Backend]) -> list[Environment]:
    """List all environments, including those half booted, stopped, or with only a run volume."""
    return [
        environment
        for backend in _usable(known)
        for environment in sorted(backend.list_environments(), key=lambda other: not other.is_up)
    ]


def _usable(known: Sequence[Backend]) -> Iterator[Backend]:
    return (backend for backend in known if backend.obstacle() is None)


def resolve(
    name: str | None, default: str | None, known: Sequence[Backend], root: Path
) -> Environment:
    """Find an environment by its name: one that is up, else what is left of one.

    Args:
        name: The name that the user typed, or None.
        default: The name of this directory's environment, or None.
        known: All backends.
        root: This project's directory, whose environment comes before others of the same name.

    Raises:
        InputError: There is no such environment, or several are up and none is named.
    """
    up = list_running(known)
    project = name or default
    if project is not None:
        named = [environment for environment in up if environment.project == project]
        named.sort(key=lambda environment: not is_same_folder(environment.folder, root))
        if environment := next(iter(named), None) or find_leftover(project, known):
            return environment
    names = ", ".join(sorted({environment.project for environment in up}))
    if name is not None:
        hint = f"these are up: {names}" if names else "boot one with `lab up`"
        raise InputError(f"no environment {name!r} is up", hint)
    if not up:
        raise InputError("no environment is up", "boot one with `lab up`")
    if len(up) > 1:
        raise InputError(f"several environments are up ({names})", "name one of them")
    return up[0]


def find_leftover(project: str, known: Sequence[Backend]) -> Environment | None:
    """Find the parts of an environment that is not up: stopped containers, or only its volume."""
    environments = (backend.find_any(project) for backend in _usable(known))
    return next((environment for environment in environments if environment is not None), None)


def _why(chosen: str, unusable: Mapping[str, str], plan: Plan) -> str:
    """Why `auto` has chosen a backend.

    With processes for CPUs, the reasons against other backends are not shown.
    """
    if not capabilities(chosen).containers and not plan.has_gpus:
        return "TensorFlow is installed here, and no task has a GPU"
    reasons = [f"{backend}: {reason}" for backend, reason in unusable.items()]
    if capabilities(chosen).containers:  # they replace the other backend, which needs no fix
        reasons = [reason.partition("; ")[0] for reason in reasons]
    return next(iter(reasons), "its tasks have GPUs" if plan.has_gpus else "its image is built")
