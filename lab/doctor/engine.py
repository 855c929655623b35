"""Checks of the Docker engine, its compose plugin, its resources, and the tasks' image."""

from __future__ import annotations

import ipaddress
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.doctor.commands import run_command
from lab.doctor.data import inspect_directory
from lab.doctor.model import Outcome, failed, ok, skipped, warning
from lab.errors import LabError
from lab.formatting import counted
from lab.placement.plan import Plan
from lab.text import short

if TYPE_CHECKING:
    from lab.backends.engine.kind import EngineKind

OLDEST: Final = (20, 10)
"""The oldest engine version that `docker compose` 2 supports."""

OLDEST_PODMAN: Final = (5,)
"""The oldest version of Podman with which `lab` was run."""

_COMPOSE_WITHOUT_BUILDER: Final = (5,)

REGISTRY_S: Final = 20.0
ROOM_BYTES: Final = 10**9
"""Free bytes needed in addition to the image: for logs, models and build files."""

ASK_S: Final = 10
"""Time limit of each request to the engine, in seconds."""

PROJECT_LABEL: Final = "lab.project"

# The engine takes addresses of new networks from these ranges if its configuration has no
# `default-address-pools`.
_POOLS: Final = (
    *((f"172.{second}.0.0/16", 16) for second in range(17, 32)),
    ("192.168.0.0/16", 20),
)
_FEW_NETWORKS: Final = 2
_RESTART: Final = "see `journalctl -u docker`, then restart it: `sudo systemctl restart docker`"
_DRIVERS: Final = frozenset({"overlay2", "overlayfs", "fuse-overlayfs", "btrfs", "zfs", "stargz"})
_CONTAINERD: Final = "/run/containerd/containerd.sock"
"""The socket of the host's containerd. Engine 26 does not report which one it uses."""

_LIMITS: Final = {
    "MemoryLimit": "memory",
    "CpuCfsQuota": "CPU time",
    "CPUSet": "CPU sets",
    "PidsLimit": "the number of processes",
}

Network = ipaddress.IPv4Network


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the engine reports.

    Attributes:
        info: As `docker info --format '{{json .}}'` prints it.
        networks: The address ranges of its networks.
        projects: Project of an environment to the states of its containers.
        is_podman: Whether it is Podman.
    """

    info: Mapping[str, Any]
    networks: Sequence[Network] = ()
    projects: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_podman: bool = False

    @property
    def is_local(self) -> bool:
        """Whether it runs on this host, so that its directories are on this host, too."""
        return self.info.get("Name") == platform.node()

    @property
    def images_directory(self) -> Path:
        """The directory of its images."""
        root = Path(str(self.info.get("DockerRootDir") or "/var/lib/docker"))
        status = dict(self.info.get("DriverStatus") or ())
        if not status.get("driver-type", "").startswith("io.containerd.snapshotter"):
            return root
        # An engine starts a containerd of its own if it is not given the host's.
        containerd = self.info.get("Containerd") or {}
        is_shared = containerd.get("Address", _CONTAINERD) == _CONTAINERD
        return Path("/var/lib/containerd") if is_shared else root / "containerd"

    @property
    def is_rootless(self) -> bool:
        """Whether it runs as an ordinary user."""
        return any("name=rootless" in each for each in self.info.get("SecurityOptions") or ())


@dataclass(frozen=True, slots=True)
class TaskImage:
    """The image of the config's tasks.

    Attributes:
        name: `lab:cpu`.
        base: Its base image.
        size_bytes: Its approximate size, or None if it is not known.
        is_here: Whether the engine has it.
        is_old: Whether the engine has it, but with another version of lab's code than the host.
        base_state: `exists`, `can be downloaded` from a registry, or "".
    """

    name: str
    base: str
    size_bytes: int | None
    is_here: bool
    is_old: bool = False
    base_state: str = ""


def read_engine(timeout_s: int = ASK_S) -> EngineInfo:
    """Read the facts about the engine.

    Raises:
        LabError: No engine answers, or access is denied.
    """
    # Imported here: the package docker-py may be missing.
    import docker  # noqa: PLC0415

    from lab.backends.engine.client import engine_errors  # noqa: PLC0415
    from lab.backends.engine.kind import is_podman  # noqa: PLC0415

    with engine_errors("reaching the engine"):
        api = docker.from_env(timeout=timeout_s).api
        info, podman = api.info(), is_podman(api.version())
        networks = [
            ipaddress.ip_network(each["Subnet"], strict=False)
            for network in api.networks()
            for each in (network.get("IPAM") or {}).get("Config") or ()
            if each.get("Subnet")
        ]
        projects: dict[str, list[str]] = {}
        for each in api.containers(all=True, filters={"label": [PROJECT_LABEL]}):
            projects.setdefault(each["Labels"][PROJECT_LABEL], []).append(each["State"])
    ipv4 = [each for each in networks if isinstance(each, Network)]
    return EngineInfo(info, ipv4, projects, podman)


def kind(engine_info: EngineInfo | None) -> EngineKind:
    """Return the kind of an engine, as it reports it; None: by its address."""
    from lab.backends.engine.kind import EngineKind, kind_by_address  # noqa: PLC0415

    if engine_info is None:
        return kind_by_address()
    return EngineKind(engine_info.is_rootless, engine_info.is_podman)


def compose_version() -> str:
    """Return the version of the compose plugin.

    Raises:
        LabError: There is no plugin, or it is too old.
    """
    from lab.backends.compose import cli  # noqa: PLC0415

    return cli.compose_version()


def buildx_version() -> str:
    """Return the version of docker's plugin buildx, `0.29.1`, or "" if docker has no such plugin.

    Raises:
        LabError: Compose refuses the plugin.
    """
    from lab.backends.compose import cli  # noqa: PLC0415

    cli.require_builder()
    found = run_command(("docker", "buildx", "version"), ASK_S)
    # It prints `github.com/docker/buildx v0.29.1 COMMIT`.
    version = found.out.split()[1:2] if found.code == 0 else []
    return short(version[0].removeprefix("v")) if version else ""


def disk(engine_info: EngineInfo) -> tuple[Path, int] | None:
    """Return the directory of the engine's images, and its free bytes; None on another host."""
    if not engine_info.is_local:
        return None
    directory = inspect_directory(engine_info.images_directory, "images", "")
    return directory.existing, directory.free


def judge_command(docker: str | None) -> Outcome:
    """Check that the `docker` command is installed.

    Args:
        docker: Its path, or None.
    """
    if docker is None:
        return warning(
            "not installed",
            "install Docker Engine with its compose plugin; Debian 13: "
            "`sudo apt-get install docker.io docker-cli docker-compose`; Ubuntu: "
            "`sudo apt-get install docker.io docker-compose-v2`",
            "no Docker",
            stops=True,
        )
    return ok(short(docker))


def judge_engine(engine_info: EngineInfo, environ: Mapping[str, str]) -> Outcome:
    """Check that the engine is recent enough."""
    version = str(engine_info.info.get("ServerVersion", ""))
    what = f"{short(version)}{_at(environ)}{', rootless' if engine_info.is_rootless else ''}"
    if engine_info.is_podman:
        what = f"Podman {what}"
        if numbers(version) < OLDEST_PODMAN:
            return failed(what, "install Podman 5 or later", "Podman is too old")
        return ok(what)
    if numbers(version) < OLDEST:
        return failed(what, "install Docker Engine 20.10 or later", "the engine is too old")
    return ok(what)


def judge_no_engine(error: LabError | OSError, environ: Mapping[str, str]) -> Outcome:
    """Report why the engine did not answer."""
    if isinstance(error, LabError):
        what = f"{error.what.removeprefix('reaching the engine: ')}{_at(environ)}"
        if "does not answer" not in what:
            reason = "no permission" if "permission" in what else "no engine answers"
            return failed(what, error.fix, reason)
    else:
        what = f"the engine{_at(environ)} does not answer within {ASK_S} s"
    return failed(what, _RESTART, "the engine hangs")


def judge_compose(compose_version: str) -> Outcome:
    """Report the version of the compose plugin."""
    return ok(compose_version)


def judge_no_compose(error: LabError | OSError) -> Outcome:
    """Report why the compose plugin cannot be used."""
    what, fix = "`docker compose version` does not end", "check whether `docker version` ends"
    if isinstance(error, LabError):
        what, fix = error.what, error.fix
    return failed(what, fix, "no compose plugin")


def judge_buildx(
    buildx_version: str,
    compose_version: str,
    engine_info: EngineInfo,
    environ: Mapping[str, str],
) -> Outcome:
    """Report how compose builds images.

    Args:
        buildx_version: The version of docker's plugin buildx; "" without the plugin.
        compose_version: The version of compose.
        engine_info: What the engine reports.
        environ: The environment variables.
    """
    if engine_info.is_podman and environ.get("DOCKER_BUILDKIT") != "0":
        return warning(
            "compose builds in a BuildKit container of Docker Hub, because this engine is Podman",
            "let Podman build: `export DOCKER_BUILDKIT=0`",
        )
    if buildx_version:
        return ok(buildx_version)
    if numbers(compose_version) < _COMPOSE_WITHOUT_BUILDER:
        return ok(f"not installed; compose {compose_version} has a builder of its own")
    return warning(
        f"not installed: compose {compose_version} builds with the engine's classic builder, which "
        "is deprecated",
        "install `docker-buildx-plugin` from Docker's repository",
    )


def judge_no_builder(error: LabError | OSError, known_image: TaskImage | None) -> Outcome:
    """Report that compose refuses to build; this matters if the image must be built.

    Args:
        error: The refusal.
        known_image: The image of the tasks, if it is known.
    """
    if not isinstance(error, LabError):
        return warning("compose does not answer", _RESTART)
    what = error.what.removeprefix("building an image: ")
    if known_image is not None and (known_image.is_old or not known_image.is_here):
        return failed(what, error.fix, "buildx is too old")
    return warning(what, error.fix)


def judge_storage(engine_info: EngineInfo) -> Outcome:
    """Check that containers share the files of their image."""
    driver = str(engine_info.info.get("Driver", ""))
    if driver in _DRIVERS or (engine_info.is_podman and driver == "overlay"):
        return ok(driver)
    costs = (
        "each container needs a full copy of the image"
        if driver == "vfs"
        else "this driver is no longer maintained, or unknown"
    )
    return warning(
        f"{short(driver)}: {costs}",
        'set `"storage-driver": "overlay2"` in /etc/docker/daemon.json, then '
        "`sudo systemctl restart docker`, and build images again",
    )


def judge_limits(engine_info: EngineInfo) -> Outcome:
    """Check that the engine can enforce the limits of the config."""
    version = str(engine_info.info.get("CgroupVersion", "1"))
    driver = str(engine_info.info.get("CgroupDriver", ""))
    what = f"cgroups {short(version)}, by {short(driver)}"
    if driver == "none":
        return warning(
            f"{what}: no limit of the config is enforced: CPUs, memory or processes",
            "boot with cgroups 2 (`systemd.unified_cgroup_hierarchy=1` on the kernel's command"
            " line) and systemd as the user's init",
        )
    lacking = [limit for key, limit in _LIMITS.items() if not engine_info.info.get(key, True)]
    if not lacking:
        return ok(f"{what}: CPUs, memory and processes can be limited")
    fix = (
        "delegate the controllers to users: `sudo systemctl edit user@.service` with "
        "`[Service] Delegate=cpu cpuset io memory pids`, then log in again"
        if engine_info.is_rootless
        else "enable the missing cgroup controllers, such as with `cgroup_enable=memory` on the "
        "kernel's command line"
    )
    return warning(f"{what}: the engine cannot limit {', '.join(lacking)}", fix)


def find_image(plan: Plan) -> TaskImage:
    """Find the plan's image, and whether it exists or can be built.

    Raises:
        LabError: The engine does not answer, compose rejects the file, or the image that the user
            has set does not fit this version of lab.
    """
    from lab.backends.compose.image_build import (  # noqa: PLC0415
        ImageStatus,
        image_builder,
        size_of,
    )
    from lab.backends.engine.client import Engine  # noqa: PLC0415

    with image_builder(Engine(), plan, Path.cwd()) as builder:
        image, found = builder.image, builder.status()
        base_state = "" if found is ImageStatus.FITS else builder.base_state()
    size = size_of(image)
    size_bytes = None if size is None else size.image_mb * 10**6
    exists, is_old = found is not ImageStatus.MISSING, found is ImageStatus.OLD
    return TaskImage(image.name, image.base, size_bytes, exists, is_old, base_state)


def judge_image(image: TaskImage) -> Outcome:
    """Check that the tasks' image exists, or can be built."""
    name, base = short(image.name), short(image.base)
    if image.is_here and not image.is_old:
        return ok(f"{name} exists")
    state, builds = f"{name} is not built yet", "builds it"
    if image.is_old:
        state, builds = f"{name} has another version of lab's code", "builds it again"
    if image.base_state:
        return ok(f"{state}; its base {base} {image.base_state}, and the first run {builds}")
    return failed(
        f"{state}, and its base {base} cannot be downloaded",
        "build a base with `tools/base-image.sh`, then `export LAB_BASE_IMAGE=lab-base:bookworm`",
        "no image",
    )


def judge_no_image(error: LabError | OSError) -> Outcome:
    """Report why the tasks' image is not known."""
    if isinstance(error, LabError):
        return failed(error.what, error.fix, "no image")
    return warning(
        "the image is not built, and the registry does not answer",
        "build a base with `tools/base-image.sh`, then `export LAB_BASE_IMAGE=lab-base:bookworm`",
    )


def judge_disk(engine_disk: tuple[Path, int] | None, known_image: TaskImage | None) -> Outcome:
    """Check that the image fits on the engine's disk.

    Args:
        engine_disk: The directory of the engine's images, and its free bytes; None if the engine
            runs on another host.
        known_image: The image of the tasks, if it is known.
    """
    if engine_disk is None:
        return skipped("the engine runs on another host")
    where, free = engine_disk
    what = f"{_gb(free)} free in {where}"
    fix = "free some space with `docker image prune` and `docker builder prune`"
    missing = known_image is not None and not known_image.is_here
    size = (known_image.size_bytes or 0) if known_image is not None and missing else 0
    if free >= size + ROOM_BYTES:
        return ok(f"{what}; the image needs {_gb(size)}" if size else what)
    if missing:
        what = f"{what}, but the image and its containers need {_gb(size + ROOM_BYTES)}"
        return failed(what, fix, "no space for the image")
    return warning(what, fix)


def judge_host_access(engine_info: EngineInfo) -> Outcome:
    """Say when tasks in containers reach this host."""
    from lab.backends.compose.render import ISOLATES_SINCE  # noqa: PLC0415

    version = numbers(str(engine_info.info.get("ServerVersion", "")))
    prevents = ", and so does `lab render -o network=isolated`"
    return ok(
        "after `docker compose up`, tasks reach services of this host on all addresses; "
        "`lab up` and `lab run` block them"
        f"{prevents if version >= (ISOLATES_SINCE,) else ''}"
    )


def judge_address_pools(engine_info: EngineInfo, routes: Sequence[tuple[Network, str]]) -> Outcome:
    """Check that the engine has a free address range for another network.

    The engine takes the first range of its pools that does not overlap with one of its networks.
    An engine on this host also skips ranges that overlap with a route of this host.
    """
    if engine_info.is_podman:
        return skipped("Podman does not report its `default_subnet_pools`")
    pools = [
        (str(each["Base"]), int(each["Size"]))
        for each in engine_info.info.get("DefaultAddressPools") or ()
        if "." in str(each["Base"])
    ] or list(_POOLS)
    if not engine_info.is_local:
        routes = ()
    taken = [*engine_info.networks, *(net for net, _ in routes)]
    ranges = [each for base, size in pools for each in _ranges(base, size)]
    left = sum(not any(each.overlaps(other) for other in taken) for each in ranges)
    by_route = [
        f"{net} by {device}"
        for net, device in routes
        if net not in engine_info.networks and sum(each.overlaps(net) for each in ranges) > 1
    ]
    if by_route:
        what = f"routes of this host use {short(', '.join(by_route))}"
        fix = (
            'set other ranges in "default-address-pools" in /etc/docker/daemon.json, then '
            "`sudo systemctl restart docker`"
        )
    else:
        what = f"{len(engine_info.networks)} networks exist"
        fix = "remove unused networks with `docker network prune`"
    if left == 0:
        what = f"no address range is free for another network: {what}"
        return failed(what, fix, "no address range")
    shown = f"address ranges for {counted(left, 'more network')}"
    return warning(f"{shown}: {what}", fix) if left <= _FEW_NETWORKS else ok(shown)


def judge_environments(engine_info: EngineInfo) -> Outcome:
    """Check that no environment has only stopped containers."""
    stopped = sorted(
        name for name, states in engine_info.projects.items() if "running" not in states
    )
    if stopped:
        return warning(
            f"stopped, but not removed: {short(', '.join(stopped))}",
            f"collect its runs and remove it: `lab down {short(stopped[0])}`",
        )
    up = len(engine_info.projects)
    return ok(f"{up} up, see `lab ls`" if up else "no environment is up")


def _gb(size: int) -> str:
    return f"{size / 10**9:.1f} GB"


def _at(environ: Mapping[str, str]) -> str:
    host = environ.get("DOCKER_HOST", "")
    return f" at {short(host)}" if host else ""


def numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, which can be compared."""
    return tuple(int(each) for each in re.findall(r"\d+", version)[:2])


def _ranges(base: str, size: int) -> Iterator[Network]:
    network = ipaddress.IPv4Network(base, strict=False)
    # A pool may have millions of ranges; the first 256 are enough.
    return islice(network.subnets(new_prefix=max(size, network.prefixlen)), 256)
