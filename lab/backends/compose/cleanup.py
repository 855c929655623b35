"""Removes everything with a project's label, or what was added since a snapshot."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.backends.engine.client import Engine, NotFound, engine_errors
from lab.backends.engine.containers import NODE, PROJECT, TASK, TRANSIENT

if TYPE_CHECKING:
    from docker.models.containers import Container

STOP_S: Final = 10
"""Seconds that a container has to end before the engine kills it."""


@dataclass(frozen=True, slots=True)
class Resources:
    """The containers, networks and volumes that carry a project's label.

    Attributes:
        containers: Ids of its containers.
        networks: Ids of its networks.
        volumes: Names of its volumes.
    """

    containers: frozenset[str]
    networks: frozenset[str]
    volumes: frozenset[str]


NO_RESOURCES: Final = Resources(frozenset(), frozenset(), frozenset())


def list_resources(engine: Engine, project: str) -> Resources:
    """List what carries the project's label now.

    Raises:
        LabError: The engine does not answer.
    """
    filters = {"label": f"{PROJECT}={project}"}
    containers = engine.containers(filters["label"])
    with engine_errors("listing networks and volumes"):
        client = engine.client()
        return Resources(
            frozenset(str(container.id) for container in containers),
            frozenset(str(network.id) for network in client.networks.list(filters=filters)),
            frozenset(str(volume.name) for volume in client.volumes.list(filters=filters)),
        )


def projects(engine: Engine) -> set[str]:
    """Return the names of all projects that have a container, network or volume.

    Raises:
        LabError: The engine does not answer.
    """
    filters = {"label": PROJECT}
    names = {str(container.labels[PROJECT]) for container in engine.containers(PROJECT)}
    with engine_errors("listing networks and volumes"):
        client = engine.client()
        resources = [*client.networks.list(filters=filters), *client.volumes.list(filters=filters)]
    return names | {str(resource.attrs["Labels"][PROJECT]) for resource in resources}


def remove(engine: Engine, project: str, *, keep: Resources = NO_RESOURCES) -> None:
    """Stop and remove what carries the project's label, except `keep`.

    A repeated call is safe: it skips what is removed already.

    Raises:
        LabError: The engine refused, or does not answer; the next call continues.
    """
    now = list_resources(engine, project)
    containers = engine.containers(f"{PROJECT}={project}")
    removed = [container for container in containers if container.id not in keep.containers]
    # Stop all before the first removal: a task without its anchor has no network.
    engine.for_each("stopping a container", removed, stop)
    # Podman refuses to remove an anchor before those that have joined its network.
    anchors = [container for container in removed if is_anchor(container)]
    joined = [container for container in removed if container not in anchors]
    for part in (joined, anchors):
        engine.for_each("removing a container", part, _remove)
    client = engine.client()
    for network in sorted(now.networks - keep.networks):
        with suppress(NotFound), engine_errors(f"removing the network of {project}"):
            client.networks.get(network).remove()
    for volume in sorted(now.volumes - keep.volumes):
        with suppress(NotFound), engine_errors(f"removing the volume {volume}"):
            client.volumes.get(volume).remove()


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
