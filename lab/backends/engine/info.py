"""What an engine reports about itself and its host."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import Any, Final

from lab.backends.engine.client import Engine, engine_errors
from lab.backends.engine.kind import EngineKind

ANSWER_S: Final = 10
"""Time limit of each request, in seconds."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine reports.

    Attributes:
        info: As `docker info --format '{{json .}}'` prints it.
        networks: The address ranges of its networks.
        is_podman: Whether it is Podman.
    """

    info: Mapping[str, Any]
    networks: Sequence[IPv4Network] = ()
    is_podman: bool = False

    @property
    def kind(self) -> EngineKind:
        """Its kind, for hints."""
        options = self.info.get("SecurityOptions") or ()
        return EngineKind(any("name=rootless" in option for option in options), self.is_podman)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The first two numbers of its version, which can be compared."""
        return tuple(map(int, re.findall(r"\d+", str(self.info.get("ServerVersion")))[:2]))

    @property
    def is_local(self) -> bool:
        """Whether it runs on this host, so that its directories are on this host, too."""
        return self.info.get("Name") == platform.node()

    @property
    def directory(self) -> Path:
        """The directory of its volumes."""
        return Path(str(self.info.get("DockerRootDir") or "/var/lib/docker"))


def read_engine() -> EngineInfo:
    """Ask the engine about itself.

    Raises:
        LabError: No engine answers, or the user has no permission.
    """
    engine = Engine(ANSWER_S)
    with engine_errors("reaching the engine"):
        client = engine.client()
        subnets = [
            ip_network(config["Subnet"], strict=False)
            for network in client.api.networks()
            for config in (network.get("IPAM") or {}).get("Config") or ()
            if config.get("Subnet")
        ]
        networks = [subnet for subnet in subnets if isinstance(subnet, IPv4Network)]
        return EngineInfo(client.info(), networks, engine.is_podman())
