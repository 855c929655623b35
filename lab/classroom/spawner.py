"""DockerSpawner, with this host blocked from each seat before its programs start."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dockerspawner import DockerSpawner

from lab.backends.compose.host_block import block_container, host_addresses
from lab.backends.engine.client import Engine, engine_errors
from lab.classroom.names import CLASS, prefix

AT_ONCE: Final = 8
"""Requests to the engine at a time; the stop of a seat can take 10 s."""


class SeatSpawner(DockerSpawner):  # type: ignore[misc]
    """Starts a seat's container and blocks the host; the container waits for that."""

    _executor = ThreadPoolExecutor(AT_ONCE)  # by default one thread for all seats

    async def start_object(self) -> None:
        """Start the container, and block the host.

        Raises:
            LabError: The kernel or the engine refuses; the seat does not start.
        """
        await super().start_object()
        await asyncio.to_thread(self._block_host)

    def _block_host(self) -> None:
        engine = Engine()
        seat = self.user.name
        with engine_errors(f"blocking the host from {seat}"):
            container = engine.client().containers.get(self.container_id)
            (network,) = container.attrs["NetworkSettings"]["Networks"]
            # Since Engine 28, a container on an internal network has no gateway.
            hosts = list(host_addresses(engine.client().networks.get(network).attrs))
        name = container.labels[CLASS]
        # JupyterHub, on this host, asks each seat whether its server is ready.
        labels = {CLASS: name}
        block_container(engine, prefix(name), hosts, container, seat, replies=True, labels=labels)
