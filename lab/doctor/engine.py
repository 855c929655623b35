"""The Docker engine, its compose plugin, and what the engine's side needs to run tasks."""

from __future__ import annotations

import ipaddress
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lab.doctor.model import Finding, Need, Verdict
from lab.errors import LabError
from lab.task.text import short

AREA: Final = "Docker"
OLDEST: Final = (20, 10)
"""The first engine that `docker compose` 2 speaks to."""

ASK_S: Final = 10
"""Seconds without a word from the engine after which it is given up."""

PROJECT_LABEL: Final = "lab.project"

# What the engine takes networks from where its configuration names no pools; see the defaults of
# `default-address-pools`.
_POOLS: Final = (
    *((f"172.{second}.0.0/16", 16) for second in range(17, 32)),
    ("192.168.0.0/16", 20),
)
_FEW_NETWORKS: Final = 2
_RESTART: Final = "see its log, `journalctl -u docker`, and `sudo systemctl restart docker`"
_DRIVERS: Final = frozenset({"overlay2", "overlayfs", "fuse-overlayfs", "btrfs", "zfs", "stargz"})
_LIMITS: Final = {
    "MemoryLimit": "memory",
    "CpuCfsQuota": "CPU time",
    "CPUSet": "CPU sets",
    "PidsLimit": "the number of processes",
}

Network = ipaddress.IPv4Network


@dataclass(frozen=True, slots=True)
class Answers:
    """What the engine says of itself.

    Attributes:
        info: As `docker info --format '{{json .}}'` shows it.
        networks: Address ranges of its networks.
        projects: Environments with containers: their states, by project.
    """

    info: Mapping[str, Any]
    networks: Sequence[Network] = ()
    projects: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine, so that its directories are here too."""
        return self.info.get("Name") == platform.node()

    @property
    def images_directory(self) -> Path:
        """Where it keeps images."""
        status = dict(self.info.get("DriverStatus") or ())
        if status.get("driver-type", "").startswith("io.containerd.snapshotter"):
            return Path("/var/lib/containerd")
        return Path(str(self.info.get("DockerRootDir") or "/var/lib/docker"))

    @property
    def is_rootless(self) -> bool:
        """Whether it runs as an ordinary user."""
        return any("name=rootless" in each for each in self.info.get("SecurityOptions") or ())


def look(timeout_s: int = ASK_S) -> Answers:
    """Ask the engine.

    Raises:
        LabError: None answers, or it may not be asked.
    """
    # Imported here: docker-py is one of the packages that may be missing.
    import docker  # noqa: PLC0415

    from lab.backends.compose.engine import answering  # noqa: PLC0415

    with answering("reaching the engine"):
        api = docker.from_env(timeout=timeout_s).api
        info = api.info()
        networks = [
            ipaddress.ip_network(each["Subnet"], strict=False)
            for network in api.networks()
            for each in (network.get("IPAM") or {}).get("Config") or ()
            if each.get("Subnet")
        ]
        projects: dict[str, list[str]] = {}
        for each in api.containers(all=True, filters={"label": [PROJECT_LABEL]}):
            projects.setdefault(each["Labels"][PROJECT_LABEL], []).append(each["State"])
    return Answers(info, [each for each in networks if isinstance(each, Network)], projects)


def command(path: str | None) -> Finding:
    """Whether the `docker` command is installed.

    Args:
        path: Where it is, or None.
    """
    if path is None:
        return _finding(
            "command",
            Verdict.WARNING,
            "not installed",
            "install Docker Engine with its compose plugin; Debian: "
            "`sudo apt-get install docker.io docker-compose-v2`",
            "no Docker",
        )
    return _finding("command", Verdict.OK, short(path))


def engine(ask: Callable[[], Answers], host: str = "") -> tuple[Finding, Answers | None]:
    """Whether the engine answers, lets us in, and is recent enough.

    Args:
        ask: Asks it.
        host: Its address where DOCKER_HOST gives one.
    """
    at = f" at {short(host)}" if host else ""
    try:
        answers = ask()
    except TimeoutError:
        what = f"the engine{at} does not answer within {ASK_S} s"
        return _finding("engine", Verdict.FAILED, what, _RESTART, "the engine hangs"), None
    except LabError as error:
        what = f"{error.what.removeprefix('reaching the engine: ')}{at}"
        if "does not answer" in what:
            return _finding("engine", Verdict.FAILED, what, _RESTART, "the engine hangs"), None
        why = "no permission" if "permission" in what else "no engine answers"
        return _finding("engine", Verdict.FAILED, what, error.mend, why), None
    version = str(answers.info.get("ServerVersion", ""))
    rootless = ", rootless" if answers.is_rootless else ""
    what = f"{short(version)}{at}{rootless}"
    if _numbers(version) < OLDEST:
        mend = "install Docker Engine 20.10 or later"
        return _finding("engine", Verdict.FAILED, what, mend, "the engine is too old"), answers
    return _finding("engine", Verdict.OK, what), answers


def compose(version: Callable[[], str]) -> Finding:
    """Whether the compose plugin is there and recent enough."""
    try:
        return _finding("compose", Verdict.OK, version())
    except TimeoutError:
        what, mend = "`docker compose version` does not end", "see whether `docker version` does"
    except LabError as error:
        what, mend = error.what, error.mend
    return _finding("compose", Verdict.FAILED, what, mend, "no compose plugin")


def storage(info: Mapping[str, Any]) -> Finding:
    """Whether containers share their image's files."""
    driver = str(info.get("Driver", ""))
    if driver in _DRIVERS:
        return _finding("storage driver", Verdict.OK, driver)
    costs = (
        "each container takes a whole copy of the image"
        if driver == "vfs"
        else "it is no longer maintained, or unknown"
    )
    return _finding(
        "storage driver",
        Verdict.WARNING,
        f"{short(driver)}: {costs}",
        'set `"storage-driver": "overlay2"` in /etc/docker/daemon.json, then '
        "`sudo systemctl restart docker` (images have to be built anew)",
    )


def limits(info: Mapping[str, Any]) -> Finding:
    """Whether the limits of the description can be kept."""
    version, driver = str(info.get("CgroupVersion", "1")), str(info.get("CgroupDriver", ""))
    what = f"cgroups {short(version)}, by {short(driver)}"
    lacking = [words for key, words in _LIMITS.items() if not info.get(key, True)]
    if not lacking:
        return _finding("limits", Verdict.OK, f"{what}: CPUs, memory and processes can be limited")
    rootless = any("name=rootless" in each for each in info.get("SecurityOptions") or ())
    mend = (
        "delegate the controllers to users: `sudo systemctl edit user@.service` with "
        "`[Service] Delegate=cpu cpuset io memory pids`, then log in again"
        if rootless
        else "enable the missing cgroup controllers, such as by `cgroup_enable=memory` on the "
        "kernel's command line"
    )
    return _finding(
        "limits", Verdict.WARNING, f"{what}: the engine cannot limit {', '.join(lacking)}", mend
    )


def address_pools(answers: Answers, routes: Sequence[tuple[Network, str]]) -> Finding:
    """Whether the engine has an address range left for another network.

    The engine takes the first range of its pools that overlaps neither with a network of its own
    nor, where it runs on this machine, with a route of this machine.
    """
    pools = [
        (str(each["Base"]), int(each["Size"]))
        for each in answers.info.get("DefaultAddressPools") or ()
        if "." in str(each["Base"])
    ] or list(_POOLS)
    taken = [*answers.networks, *(each for each, _ in routes if answers.is_here)]
    ranges = [each for base, size in pools for each in _ranges(base, size)]
    left = sum(not any(each.overlaps(other) for other in taken) for each in ranges)
    mend = "remove networks that nobody uses with `docker network prune`"
    by_route = [
        f"{route} by {device}"
        for route, device in routes
        if answers.is_here
        and route not in answers.networks
        and sum(each.overlaps(route) for each in ranges) > 1
    ]
    if by_route:
        what = f"this machine's routes take up {short(', '.join(by_route))}"
        mend = (
            'name other ranges under "default-address-pools" in /etc/docker/daemon.json, then '
            "`sudo systemctl restart docker`"
        )
    else:
        what = f"{len(answers.networks)} networks are there"
    if left == 0:
        what = f"no address range is left for another network: {what}"
        return _finding("address pools", Verdict.FAILED, what, mend, "no address range")
    shown = f"room for {left} more network{'' if left == 1 else 's'}"
    if left <= _FEW_NETWORKS:
        return _finding("address pools", Verdict.WARNING, f"{shown}: {what}", mend)
    return _finding("address pools", Verdict.OK, shown)


def leftovers(projects: Mapping[str, Sequence[str]]) -> Finding:
    """Environments whose containers have stopped."""
    dead = sorted(name for name, states in projects.items() if "running" not in states)
    up = len(projects) - len(dead)
    if not dead:
        what = "no environment is up" if not up else f"{up} up, see `lab ls`"
        return _finding("environments", Verdict.OK, what)
    return _finding(
        "environments",
        Verdict.WARNING,
        f"stopped, but not removed: {short(', '.join(dead))}",
        f"bring its runs home and remove it: `lab down {short(dead[0])}`",
    )


def further(why: str) -> Finding:
    """What stands for all the checks that need an engine."""
    return _finding("further checks", Verdict.SKIPPED, why)


def docker_path() -> str | None:
    """Where the `docker` command is."""
    return shutil.which("docker")


def host() -> str:
    """The engine's address where the environment names one."""
    return os.environ.get("DOCKER_HOST", "")


def _finding(name: str, verdict: Verdict, what: str, mend: str = "", blocks: str = "") -> Finding:
    return Finding(AREA, name, verdict, what, mend, Need.COMPOSE, blocks)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version)[:2])


def _ranges(base: str, size: int) -> Iterator[Network]:
    network = ipaddress.IPv4Network(base, strict=False)
    # A pool may hold millions; more than these nobody needs to count.
    for position, each in enumerate(network.subnets(new_prefix=max(size, network.prefixlen))):
        if position == 256:  # noqa: PLR2004
            return
        yield each
