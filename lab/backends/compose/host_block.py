"""Blocks this host from the tasks of an environment, by short-lived containers.

Each container shares only the network of a node's anchor. Its only capability is NET_ADMIN. A node
that was restarted is open again: `block_host` checks every node.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lab.backends.compose.cleanup import is_anchor
from lab.backends.compose.render import ISOLATED
from lab.backends.engine.client import Engine, engine_errors
from lab.backends.engine.containers import NODE, PROJECT
from lab.backends.network_faults import refused
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.protocol.network.host_block import MODULE, ROUTES, is_blocked

if TYPE_CHECKING:
    from docker.models.containers import Container

_ISOLATES_SINCE: Final = 28
"""The first version of the engine with networks on which the host has no address."""

_BLOCK_S: Final = 30.0
_MAX_ROUTES_BYTES: Final = 1 << 20


def block_host(engine: Engine, project: str) -> None:
    """Block this host from every node that can reach it; if that fails, print a warning.

    On a network that was rendered with `-o network=isolated`, there is nothing to block.
    """
    try:
        block_nodes(engine, project, only_running=True)
    except LabError as error:
        LOG.warning(f"warning: tasks can reach this host: {error}")


def block_nodes(engine: Engine, project: str, *, only_running: bool = False) -> None:
    """Block this host from every node.

    Args:
        engine: The engine.
        project: The environment.
        only_running: Leave out nodes that do not run; otherwise they are an error.

    Raises:
        LabError: A node does not run, or the kernel or the engine refuses.
    """
    if hosts := _host_addresses(engine, project):
        nodes = filter(is_anchor, engine.containers(f"{PROJECT}={project}"))
        anchors = [node for node in nodes if node.status == "running" or not only_running]

        def block(anchor: Container) -> None:
            block_container(engine, project, hosts, anchor, f"node {anchor.labels[NODE]}")

        engine.for_each("blocking the host from the tasks", anchors, block)


def _host_addresses(engine: Engine, project: str) -> list[str]:
    """The host's IPv4 addresses on the project's networks that are not isolated."""
    with engine_errors("reading the network"):
        networks: list[Mapping[str, Any]] = engine.client().api.networks(
            filters={"label": f"{PROJECT}={project}"}
        )
    # Earlier engines ignore the option.
    isolates = engine.major() >= _ISOLATES_SINCE
    return [
        address
        for network in networks
        if not (isolates and (network.get("Options") or {}).get(ISOLATED[0]) == "isolated")
        for address in host_addresses(network)
    ]


def host_addresses(network: Mapping[str, Any]) -> Iterator[str]:
    """Yield the host's IPv4 addresses on a network.

    Args:
        network: The engine's description of it.
    """
    for config in (network.get("IPAM") or {}).get("Config") or ():
        subnet = ipaddress.ip_network(config["Subnet"], strict=False)
        if subnet.version == 4:  # noqa: PLR2004
            # Without a configured gateway the bridge has the first address.
            yield config.get("Gateway") or str(subnet[1])


def block_container(
    engine: Engine,
    project: str,
    hosts: Sequence[str],
    anchor: Container,
    name: str,
    *,
    replies: bool = False,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Block the host from one container, unless it is blocked already.

    Args:
        engine: The engine.
        project: The label of the short-lived container that does it.
        hosts: The host's addresses on the container's only network.
        anchor: The container; its image contains this package's `lab.task`.
        name: Its name in messages: `node tf2`.
        replies: Whether the container may answer connections that the host opened.
        labels: More labels of the short-lived container.

    Raises:
        LabError: The kernel or the engine refuses.
    """
    doing, command = f"reading the routes of {name}", ["cat", ROUTES]
    done = engine.execute(
        doing, str(anchor.id), command, within_s=_BLOCK_S, max_bytes=_MAX_ROUTES_BYTES
    )
    if is_blocked(done.stdout.decode("ascii", errors="replace")):
        return
    container = engine.create(
        project,
        anchor.attrs["Image"],
        ["python", "-m", MODULE, *(["--replies"] if replies else []), *hosts],
        network_mode=f"container:{anchor.id}",
        user="0:0",
        cap_add=["NET_ADMIN"],
        labels=labels,
    )
    try:
        container.start()
        code = container.wait(timeout=_BLOCK_S)["StatusCode"]
        if code:
            raise refused(name, container.logs(stdout=False))
    finally:
        with suppress(LabError), engine_errors(f"blocking the host from {name}"):
            container.remove(force=True)
