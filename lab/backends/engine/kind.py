"""The kind of an engine, Docker's or Podman, rootless or not, and what it changes in hints."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_PODMAN_SERVICE: Final = "podman.socket"
_DOCKER_SOCKET: Final = "docker.sock"
_PODMAN_SOCKET: Final = "podman/podman.sock"
_USERS: Final = "/run/user/"
"""The directory of the sockets of rootless engines."""

_ROOTLESS: Final = (
    (
        "sudo nvidia-ctk runtime configure --runtime=docker",
        "nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json"
        " && sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place",
    ),
    ("sudo systemctl start docker", "systemctl --user start docker"),
    ("sudo systemctl restart docker", "systemctl --user restart docker"),
    ("journalctl -u docker", "journalctl --user -u docker"),
    ("/etc/docker/daemon.json", "~/.config/docker/daemon.json"),
)
_PODMAN: Final = (
    ("start docker", f"start {_PODMAN_SERVICE}"),
    ("restart docker", f"restart {_PODMAN_SERVICE}"),
    ("-u docker", "-u podman"),
)


@dataclass(frozen=True, slots=True)
class EngineKind:
    """The kind of an engine.

    Attributes:
        is_rootless: Whether it runs as an ordinary user.
        is_podman: Whether it is Podman.
    """

    is_rootless: bool = False
    is_podman: bool = False

    def fix(self, hint: str) -> str:
        """Return a hint for Docker Engine with the commands and files of this engine."""
        pairs = (*(_ROOTLESS if self.is_rootless else ()), *(_PODMAN if self.is_podman else ()))
        for of_docker, own in pairs:
            hint = hint.replace(of_docker, own)
        return hint


def is_podman(version: Mapping[str, Any]) -> bool:
    """Whether an engine is Podman, by its answer to `docker version`."""
    return any(part.get("Name") == "Podman Engine" for part in version.get("Components") or ())


def kind_by_address(environ: Mapping[str, str] = os.environ) -> EngineKind:
    """Return the kind of the engine that the environment or docker's context names.

    It does not query the engine.
    """
    address = environ.get("DOCKER_HOST") or _address_of_context(environ)
    path = address.removeprefix("unix://")
    own = environ.get("XDG_RUNTIME_DIR") or _USERS
    rootless = path.startswith((_USERS, f"{own.rstrip('/')}/"))
    return EngineKind(rootless, re.search(r"/podman[^/]*\.sock$", path) is not None)


def _address_of_context(environ: Mapping[str, str]) -> str:
    # Imported here: it takes 0.2 s, and the package docker-py may be missing.
    with suppress(ImportError):
        from docker import errors  # noqa: PLC0415
        from docker.context import ContextAPI  # noqa: PLC0415

        with suppress(errors.DockerException, OSError, ValueError):
            settings = ContextAPI.kwargs_from_context(environment=dict(environ))
            return str(settings.get("base_url") or "")
    return ""


def rootless_socket() -> str:
    """Return the `DOCKER_HOST` of this user's rootless engine, if nothing else names an engine."""
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    if not own or os.environ.get("DOCKER_HOST") or kind_by_address(os.environ).is_rootless:
        return ""
    sockets = (name for name in (_DOCKER_SOCKET, _PODMAN_SOCKET) if Path(own, name).is_socket())
    return next((f"unix://$XDG_RUNTIME_DIR/{name}" for name in sockets), "")
