"""Which backend, and which environment on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from lab.backends import Backend, Environment, Notify, TaskInfo
from lab.errors import InputError, LabError
from lab.placement.plan import Plan
from lab.task.probes.version import digest
from lab.task.text import visible

T = TypeVar("T")

AUTO: Final = "auto"
LOCAL: Final = "local"
COMPOSE: Final = "compose"
BACKENDS: Final = (AUTO, LOCAL, COMPOSE)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a command works with.

    Attributes:
        backend: The backend.
        environment: The environment that is up already, or None.
    """

    backend: Backend
    environment: Environment | None


def backends() -> list[Backend]:
    """All backends; the one that is preferred comes first."""
    # Imported here: docker-py costs 0.3 s, and `lab validate` needs none of it.
    from lab.backends.compose import ComposeBackend  # noqa: PLC0415
    from lab.backends.local import LocalBackend  # noqa: PLC0415

    return [ComposeBackend(), LocalBackend()]


def choose(name: str, plan: Plan, root: Path, known: Sequence[Backend], notify: Notify) -> Choice:
    """Take the environment that is up, else the backend that can boot one.

    Args:
        name: `auto`, or a backend's name.
        plan: What is to be up.
        root: The project's directory.
        known: All backends; the one that is preferred comes first.
        notify: Receives one line: which backend, and why.

    Raises:
        LabError: The backend that was asked for cannot be used here, or none can.
    """
    faults: dict[str, str] = {}
    usable: list[Backend] = []
    for backend in known:
        if name in {AUTO, backend.name}:
            fault = backend.unavailable_reason()
            if fault is None:
                usable.append(backend)
            else:
                faults[backend.name] = fault
    for backend in usable:
        environment = backend.find(plan.name)
        if environment is not None:
            notify(f"backend {backend.name}: environment {plan.name!r} is up there")
            return Choice(backend, environment)
    for backend in usable:
        fault = backend.missing_image(plan, root=root)
        if fault is None:
            notify(f"backend {backend.name}: {_why(name, faults)}")
            return Choice(backend, None)
        faults[backend.name] = fault
    raise LabError(", ".join(f"backend {each}: {fault}" for each, fault in faults.items()))


def check_compatible(environment: Environment, plan: Plan, description: str, root: Path) -> None:
    """See that an environment was booted in this project, for this plan as it is now.

    Args:
        environment: It bears the name that this description gives.
        plan: What is to be up.
        description: The path that it was made from, for the message.
        root: This project's directory.

    Raises:
        InputError: It was not: its tasks run another folder's programs, stand otherwise, or have
            another TensorFlow or another version of lab's own code.
        LabError: The environment's backend does not answer.
    """
    name = f"environment {environment.project!r} ({environment.backend})"
    again = f"`lab down {environment.project}` and run it again"
    if not _is_of(root, environment):
        raise InputError(
            f"{name} was booted from {visible(environment.folder)}",
            f"go there, `lab down {environment.project}` it, or give this one another `name:`",
        )
    if environment.cluster_sha256 != plan.cluster_sha256:
        raise InputError(
            f"{name} was booted from another state of {description}",
            "undo the change to the description, or `lab down` and run it again",
        )
    if environment.tensorflow != plan.tensorflow:
        raise InputError(
            f"{name} is up with TensorFlow {environment.tensorflow},"
            f" and this needs {plan.tensorflow}",
            again,
        )
    if environment.sources_sha256 != digest():
        raise InputError(f"{name} is up with another version of lab/task than this lab", again)


def check_folder(environment: Environment, root: Path) -> None:
    """See that an environment was booted in this project, when a description's name stands for it.

    Raises:
        InputError: Another project has taken the same name.
    """
    if not _is_of(root, environment):
        raise InputError(
            f"environment {environment.project!r} ({environment.backend}) was booted from"
            f" {visible(environment.folder)}, not from here",
            f"go there, or name it: `lab down {environment.project}`",
        )


def _is_of(root: Path, environment: Environment) -> bool:
    return not environment.folder or Path(environment.folder).resolve() == root.resolve()


def require_agents(project: str, tasks: Sequence[TaskInfo]) -> None:
    """See that the agents of all tasks of an environment are there, before a request is written.

    The others would take the request up, and wait for the missing one until they time out.

    Raises:
        LabError: One is not.
    """
    down = [task for task in tasks if not task.alive]
    if down:
        raise LabError(
            f"{down[0].task} of environment {project} is not up: {down[0].detail}",
            f"see `lab ps`, then `lab down` and `lab up` ({len(down)} tasks are down)"
            if len(down) > 1
            else "see `lab ps` and `lab logs`, then `lab down` and `lab up`",
        )


def known_task(project: str, found: Mapping[str, T], task: str) -> T:
    """What is found under a task's name.

    Raises:
        InputError: The environment has no such task.
    """
    if task not in found:
        raise InputError(
            f"environment {project} has no task {visible(task)!r}",
            f"it has {', '.join(found) or 'none'}",
        )
    return found[task]


def list_running(known: Sequence[Backend]) -> list[Environment]:
    """Every environment that is up, on every backend that can be used."""
    return [each for backend in _usable(known) for each in backend.all()]


def list_all(known: Sequence[Backend]) -> list[Environment]:
    """The same, and what is left of every other: half booted, stopped, or only its run volume."""
    return [
        each for backend in _usable(known) for each in (*backend.all(), *backend.find_orphans())
    ]


def _usable(known: Sequence[Backend]) -> Iterator[Backend]:
    return (backend for backend in known if backend.unavailable_reason() is None)


def resolve(name: str | None, default: str | None, known: Sequence[Backend]) -> Environment:
    """The environment that is meant: one that is up, else what is left of one.

    Args:
        name: What the user typed, or None.
        default: The name in the description of this directory, or None.
        known: All backends.

    Raises:
        InputError: None is there, or it is not clear which is meant.
    """
    up = list_running(known)
    wanted = name or default
    if wanted is not None:
        fitting = next((each for each in up if each.project == wanted), None) or find_leftover(
            wanted, known
        )
        if fitting is not None:
            return fitting
    names = ", ".join(sorted({environment.project for environment in up}))
    if name is not None:
        there = f"these are: {names}" if names else "boot one with `lab up`"
        raise InputError(f"no environment {name!r} is up", there)
    if not up:
        raise InputError("no environment is up", "boot one with `lab up`")
    if len(up) > 1:
        raise InputError(f"several environments are up ({names})", "name one of them")
    return up[0]


def find_leftover(project: str, known: Sequence[Backend]) -> Environment | None:
    """What is left of an environment that is not up: stopped containers, or only its volume."""
    found = (backend.find_any(project) for backend in _usable(known))
    return next((each for each in found if each is not None), None)


def _why(name: str, faults: Mapping[str, str]) -> str:
    if name != AUTO:
        return "as asked"
    reasons = [f"{other}: {fault}" for other, fault in faults.items()]
    return reasons[0] if reasons else "it can be used here"
