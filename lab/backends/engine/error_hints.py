"""Errors of the engine and of compose, as readable messages with hints for this kind of engine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.base.errors import LabError
from lab.base.shipped import BASE_IMAGE_TOOL
from lab.base.text import short

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


@dataclass(frozen=True, slots=True)
class Hint:
    """A message and a hint for one kind of failure.

    Attributes:
        pattern: Matches the error text of the engine or of compose, in lower or upper case.
        what: What is wrong; `{0}` is the pattern's first matched group.
        fix: The hint; `{0}` likewise.
    """

    pattern: str
    what: str
    fix: str


INSTALL_COMPOSE: Final = (
    "install `docker-compose` (Debian 13), `docker-compose-v2` (Ubuntu) or"
    " `docker-compose-plugin` (Docker's repository), or use `--backend local`"
)

NO_ENGINE: Final = "no Docker engine answers"
NO_PERMISSION: Final = "no permission to use the Docker engine"

# The first match counts: causes come before their consequences.
HINTS: Final = (
    Hint(
        r"no space left on device",
        "the disk is full",
        "see `docker system df`, then run `docker image prune` and `docker builder prune`",
    ),
    Hint(
        r"could not select device driver \"+nvidia|unknown or invalid runtime name: nvidia"
        r"|nvidia-container-cli: initialization error: (?!driver rpc)"
        r"|failed to discover GPU vendor",
        "the config pins NVIDIA GPUs, but the engine does not support them",
        "install the NVIDIA driver and container toolkit, or run on CPUs with `--gpus none`",
    ),
    Hint(
        r"permission denied while trying to connect to the docker (?:daemon|API)",
        NO_PERMISSION,
        "join its group with `sudo usermod -aG docker $USER`, then log in again",
    ),
    Hint(
        r"cannot connect to the docker daemon|failed to connect to the docker API"
        r"|error during connect",
        NO_ENGINE,
        "start it with `sudo systemctl start docker`, or use `--backend local`",
    ),
    Hint(
        r"non-overlapping IPv4 address pool|all predefined address pools have been fully subnetted",
        "the engine has no address range left for another network",
        "remove unused networks with `docker network prune`",
    ),
    Hint(
        r"Bind for (\S+) failed: port is already allocated|listen tcp\S* (\S+): bind: address",
        "the address {0} is in use",
        "stop the process that listens there, or choose another port",
    ),
    Hint(
        r"compose build requires buildx (\S+) or later",
        "docker's buildx plugin is too old: compose needs {0} or later to build",
        "install `docker-buildx-plugin` from Docker's repository, "
        "or build with the engine's own builder: `export DOCKER_BUILDKIT=0`",
    ),
    Hint(
        # BuildKit puts the step and the seconds before each line of pip.
        r"Could not find a version that satisfies the requirement (\S+)"
        r"|PACKAGES DO NOT MATCH THE HASHES[^\n]*\n(?:#\S+ \S+)?\s*(\S+)",
        "pip cannot install {0} in the image",
        "check LAB_TENSORFLOW, the base image's Python, and that the build gets unmodified"
        " packages from the Python package index (LAB_BUILD_NETWORK=host makes it use the host's"
        " network)",
    ),
    Hint(
        r"(?:failed to do request|failed to resolve source metadata|failed to authorize).*"
        r"|load metadata for (\S+): *(?:ERROR|failed)|pull access denied for (\S+?),"
        r"|Get \"https?://\S+/v2/",
        "the base image cannot be fetched",
        f"without a registry, make it with `{BASE_IMAGE_TOOL}` "
        "and set LAB_BASE_IMAGE=lab-base:bookworm",
    ),
    Hint(
        r"unknown shorthand flag: 'p' in -p|'compose' is not a docker command"
        r"|unknown command: docker compose",
        "docker has no compose plugin",
        INSTALL_COMPOSE,
    ),
)

_NOISE: Final = re.compile(
    r"^(?:time=\S+ level=warning|#\d+ (?:DONE|CACHED|sha256:)|-+$|exit status \d+$"
    r"|ERROR: executor failed running|failed to solve: executor failed"
    r"|Run 'docker run --help' for more)",
)


_PUNCTUATION: Final = re.compile(r"[:,;\"']+\}*$")
"""What follows a name in a longer message of the engine, or in its JSON."""


def explain(doing: str, lines: Sequence[str]) -> LabError:
    """Return the error for a failure of the engine or of compose.

    Args:
        doing: The action that failed: `building the image`.
        lines: The printed lines, oldest first.

    Returns:
        An error with cause and hint if the failure is known, else with the last useful line.
    """
    text = "\n".join(lines)
    for hint in HINTS:
        match = re.search(hint.pattern, text, re.IGNORECASE)
        if match:
            group = next(filter(None, match.groups()), "")
            group = short(_PUNCTUATION.sub("", group))
            fix = kind_by_address().fix(hint.fix).replace("{0}", group)
            if hint.what in {NO_ENGINE, NO_PERMISSION} and (socket := rootless_socket()):
                fix = f"`export DOCKER_HOST={socket}` for your rootless engine, or {fix}"
            return LabError(f"{doing}: {hint.what.replace('{0}', group)}", fix)
    useful = [line.strip() for line in lines if line.strip() and not _NOISE.match(line.strip())]
    last = short(useful[-1]) if useful else "it failed without output"
    return LabError(f"{doing}: {last}", "see the lines above" if len(useful) > 1 else "")
