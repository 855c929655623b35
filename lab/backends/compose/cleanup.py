"""Removes everything with a project's label, or what was added since a snapshot."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

from lab.backends.engine.client import Engine, engine_errors
from lab.backends.engine.containers import NODE, PROJECT, TASK, TRANSIENT
from lab.backends.run_volume import NotFound

if TYPE_CHECKING:
    from docker.models.containers import Container
    from docker.models.networks import Network
    from docker.models.volumes import Volume

STOP_S: Final = 10
"""Seconds that a container has to end before the engine kills it."""


NO_RESOURCES: Final[frozenset[str]] = frozenset()


def list_resources(engine: Engine, project: str) -> frozenset[str]:
    """List the ids of what carries the project's label now: containers, networks and volumes.

    Raises:
        LabError: The engine does not answer.
    """
    found = chain.from_iterable(_labelled(engine, f"{PROJECT}={project}"))
    return frozenset(str(resource.id) for resource in found)


def projects(engine: Engine) -> set[str]:
    """Return the names of all projects that have a container, network or volume.

    Raises:
        LabError: The engine does not answer.
    """
    containers, networks, volumes = _labelled(engine, PROJECT)
    names = {str(container.labels[PROJECT]) for container in containers}
    return names | {str(other.attrs["Labels"][PROJECT]) for other in (*networks, *volumes)}


def _labelled(engine: Engine, label: str) -> tuple[list[Container], list[Network], list[Volume]]:
    containers, filters = engine.containers(label), {"label": label}
    with engine_errors("listing networks and volumes"):
        client = engine.client()
        networks = client.networks.list(filters=filters)
        return containers, networks, client.volumes.list(filters=filters)


def remove(
    engine: Engine,
    project: str,
    *,
    keep: Collection[str] = NO_RESOURCES,
    keep_volumes: bool = False,
) -> None:
    """Stop and remove what carries the project's label.

    A repeated call is safe: it skips what is removed already.

    Args:
        engine: The engine.
        project: The project.
        keep: The ids of what stays.
        keep_volumes: Whether all volumes stay.

    Raises:
        LabError: The engine refused, or does not answer; the next call continues.
    """
    containers, networks, volumes = _labelled(engine, f"{PROJECT}={project}")
    removed = [container for container in containers if container.id not in keep]
    # Stop all before the first removal: a task without its anchor has no network.
    engine.for_each("stopping a container", removed, stop)
    # Podman refuses to remove an anchor before those that have joined its network.
    anchors = [container for container in removed if is_anchor(container)]
    joined = [container for container in removed if container not in anchors]
    for part in (joined, anchors):
        engine.for_each("removing a container", part, _remove)
    for other in (*networks, *(() if keep_volumes else volumes)):
        if other.id not in keep:
            with suppress(NotFound), engine_errors(f"removing {other.name}"):
                other.remove()


def is_anchor(container: Container) -> bool:
    """Whether a container is the anchor of a node."""
    labels = container.labels
    return NODE in labels and TASK not in labels and TRANSIENT not in labels


def was_started(container: Container) -> bool:
    """Whether a container was started, even if it has ended."""
    return bool(container.status != "created")


def stop(container: Container) -> None:
    """Stop a container, if it was started."""
    if was_started(container):
        container.stop(timeout=STOP_S)


def _remove(container: Container) -> None:
    from docker.errors import APIError  # noqa: PLC0415  (takes 0.2 s)

    try:
        container.remove(force=True, v=True)
    except APIError as error:
        if "already in progress" not in str(error):
            raise
        # Another command removes it now: wait for that.
        container.wait(condition="removed", timeout=STOP_S)
