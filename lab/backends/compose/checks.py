"""What `lab doctor` checks of an engine, and of the container toolkit for GPUs."""

from __future__ import annotations

import shutil
from typing import Final

from lab.backends.engine.info import EngineInfo
from lab.doctor.model import Outcome, failed, ok
from lab.text import short

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


def _uses_cdi(engine: EngineInfo) -> bool:
    """Whether the engine adds GPUs to containers by CDI; otherwise it uses the toolkit's hook."""
    devices = engine.info.get("DiscoveredDevices") or ()
    known = any(str(device.get("ID")).startswith("nvidia.com/gpu=") for device in devices)
    return engine.kind.is_podman or (known and engine.numbers >= _USES_CDI_SINCE)


def check_toolkit(engine: EngineInfo) -> Outcome:
    """Check that the engine can give GPUs to containers."""
    if _uses_cdi(engine):
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
