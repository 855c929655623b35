"""Checks of the Docker engine, its compose plugin and its networks."""

from __future__ import annotations

import ipaddress
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.doctor.model import Outcome, failed, ok, skipped, warning
from lab.errors import LabError
from lab.formatting import counted
from lab.text import short

if TYPE_CHECKING:
    from lab.backends.engine.kind import EngineKind

OLDEST: Final = (20, 10)
"""The oldest engine version that `docker compose` 2 supports."""

OLDEST_PODMAN: Final = (5,)
"""The oldest version of Podman with which `lab` was run."""


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
RESTART: Final = "see `journalctl -u docker`, then restart it: `sudo systemctl restart docker`"
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
    return failed(what, RESTART, "the engine hangs")


def judge_compose(compose_version: str) -> Outcome:
    """Report the version of the compose plugin."""
    return ok(compose_version)


def judge_no_compose(error: LabError | OSError) -> Outcome:
    """Report why the compose plugin cannot be used."""
    what, fix = "`docker compose version` does not end", "check whether `docker version` ends"
    if isinstance(error, LabError):
        what, fix = error.what, error.fix
    return failed(what, fix, "no compose plugin")


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
    return ok(f"{up} up, see `lab ps`" if up else "no environment is up")


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
