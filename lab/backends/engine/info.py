"""What an engine reports about itself and its host, and what `lab doctor` checks of it."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import Any, Final

from lab.backends.checks import Outcome, failed, ok
from lab.backends.engine.client import Engine, engine_errors
from lab.backends.engine.error_hints import EngineKind
from lab.base.text import short

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


_OLDEST_PODMAN: Final = 5
"""The oldest version of Podman with which `lab` was run."""

_USES_CDI_SINCE: Final = (29, 2)
"""The first engine that uses CDI for a request with `driver: nvidia`, if it knows the GPU by CDI:
https://github.com/moby/moby/pull/50228"""

_HOOKS: Final = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
_INSTALL: Final = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
)


def check_engine(engine: EngineInfo) -> Outcome:
    """Check that the engine is recent enough."""
    version = short(str(engine.info.get("ServerVersion"))) + (
        ", rootless" if engine.kind.is_rootless else ""
    )
    if not engine.kind.is_podman:
        return ok(version)
    if engine.numbers < (_OLDEST_PODMAN,):
        return failed(f"Podman {version} is too old", "install Podman 5 or later")
    return ok(f"Podman {version}")


def check_toolkit(engine: EngineInfo) -> Outcome:
    """Check that the engine can give GPUs to containers."""
    # It adds GPUs to containers by CDI, or by the toolkit's hook.
    devices = engine.info.get("DiscoveredDevices") or ()
    known = any(str(device.get("ID")).startswith("nvidia.com/gpu=") for device in devices)
    if engine.kind.is_podman or (known and engine.numbers >= _USES_CDI_SINCE):
        return ok("the engine uses CDI")
    if "nvidia" in (engine.info.get("Runtimes") or {}):
        return ok("the engine has the runtime `nvidia`")
    if hook := next(filter(None, map(shutil.which, _HOOKS)), None):
        return ok(f"the hook {short(hook)} is installed")
    fix = "`sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`"
    problem = "installed, but not configured in the engine"
    if shutil.which("nvidia-ctk") is None:
        problem = "not installed: the engine cannot give GPUs to containers"
        fix = f"install it ({_INSTALL}), then {fix}"
    return failed(problem, engine.kind.fix(fix), stops=True)
