"""The Docker engine, its compose plugin, the tasks' image, and what the engine needs for tasks."""

from __future__ import annotations

import ipaddress
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from lab.doctor.data import look_at
from lab.doctor.model import Outcome, count, failed, ok, skipped, warning
from lab.errors import LabError
from lab.placement.plan import Plan
from lab.task.text import short

OLDEST: Final = (20, 10)
"""The first engine that `docker compose` 2 can use."""

REGISTRY_S: Final = 20.0
ROOM_BYTES: Final = 10**9
"""What must be left beside the image: containers' logs, models, the build's own files."""

ASK_S: Final = 10
"""Time limit of each call of the engine."""

PROJECT_LABEL: Final = "lab.project"

# The address ranges of new networks where the engine's configuration has no
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
class EngineInfo:
    """What the engine reports.

    Attributes:
        info: As `docker info --format '{{json .}}'` prints it.
        networks: Address ranges of its networks.
        projects: Environments with containers: their states, by project.
    """

    info: Mapping[str, Any]
    networks: Sequence[Network] = ()
    projects: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine, so that its directories are on this machine too."""
        return self.info.get("Name") == platform.node()

    @property
    def images_directory(self) -> Path:
        """The directory of its images."""
        status = dict(self.info.get("DriverStatus") or ())
        if status.get("driver-type", "").startswith("io.containerd.snapshotter"):
            return Path("/var/lib/containerd")
        return Path(str(self.info.get("DockerRootDir") or "/var/lib/docker"))

    @property
    def is_rootless(self) -> bool:
        """Whether it runs as an ordinary user."""
        return any("name=rootless" in each for each in self.info.get("SecurityOptions") or ())


@dataclass(frozen=True, slots=True)
class TaskImage:
    """The image of the config's tasks.

    Attributes:
        name: `lab:cpu`.
        base: What it is built on.
        size_bytes: About how large it becomes, or None where nobody has measured it.
        is_here: Whether the engine has it.
        is_old: Whether it is here with another version of lab's own code than the host's.
        base_state: `is here`, `can be fetched` from a registry, or "".
    """

    name: str
    base: str
    size_bytes: int | None
    is_here: bool
    is_old: bool = False
    base_state: str = ""


def read_engine(timeout_s: int = ASK_S) -> EngineInfo:
    """Ask the engine.

    Raises:
        LabError: No engine answers, or access is denied.
    """
    # Imported here: docker-py is one of the packages that may be missing.
    import docker  # noqa: PLC0415

    from lab.backends.compose.client import engine_errors  # noqa: PLC0415

    with engine_errors("reaching the engine"):
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
    return EngineInfo(info, [each for each in networks if isinstance(each, Network)], projects)


def compose_version() -> str:
    """The version of the compose plugin.

    Raises:
        LabError: There is no plugin, or one that is too old.
    """
    from lab.backends.compose import cli  # noqa: PLC0415

    return cli.compose_version()


def disk(engine_info: EngineInfo) -> tuple[Path, int] | None:
    """The directory of its images, and the free bytes there; None on another machine."""
    if not engine_info.is_local:
        return None
    there = look_at(engine_info.images_directory, "images", "")
    return there.existing, there.free


def judge_command(docker: str | None) -> Outcome:
    """Whether the `docker` command is installed.

    Args:
        docker: Its file, or None.
    """
    if docker is None:
        return warning(
            "not installed",
            "install Docker Engine with its compose plugin; Debian: "
            "`sudo apt-get install docker.io docker-compose-v2`",
            "no Docker",
            stops=True,
        )
    return ok(short(docker))


def judge_engine(engine_info: EngineInfo, environ: Mapping[str, str]) -> Outcome:
    """Whether the engine is recent enough."""
    version = str(engine_info.info.get("ServerVersion", ""))
    what = f"{short(version)}{_at(environ)}{', rootless' if engine_info.is_rootless else ''}"
    if _numbers(version) < OLDEST:
        return failed(what, "install Docker Engine 20.10 or later", "the engine is too old")
    return ok(what)


def judge_no_engine(error: LabError | OSError, environ: Mapping[str, str]) -> Outcome:
    """Why the engine did not answer."""
    if isinstance(error, LabError):
        what = f"{error.what.removeprefix('reaching the engine: ')}{_at(environ)}"
        if "does not answer" not in what:
            reason = "no permission" if "permission" in what else "no engine answers"
            return failed(what, error.mend, reason)
    else:
        what = f"the engine{_at(environ)} does not answer within {ASK_S} s"
    return failed(what, _RESTART, "the engine hangs")


def judge_compose(compose_version: str) -> Outcome:
    """Report the version of the compose plugin."""
    return ok(compose_version)


def judge_no_compose(error: LabError | OSError) -> Outcome:
    """Why the compose plugin cannot be used."""
    what, fix = "`docker compose version` does not end", "see whether `docker version` does"
    if isinstance(error, LabError):
        what, fix = error.what, error.mend
    return failed(what, fix, "no compose plugin")


def judge_storage(engine_info: EngineInfo) -> Outcome:
    """Whether containers share their image's files."""
    driver = str(engine_info.info.get("Driver", ""))
    if driver in _DRIVERS:
        return ok(driver)
    costs = (
        "each container takes a whole copy of the image"
        if driver == "vfs"
        else "it is no longer maintained, or unknown"
    )
    return warning(
        f"{short(driver)}: {costs}",
        'set `"storage-driver": "overlay2"` in /etc/docker/daemon.json, then '
        "`sudo systemctl restart docker` (images have to be built anew)",
    )


def judge_limits(engine_info: EngineInfo) -> Outcome:
    """Whether the engine can enforce the limits of the config."""
    version = str(engine_info.info.get("CgroupVersion", "1"))
    driver = str(engine_info.info.get("CgroupDriver", ""))
    what = f"cgroups {short(version)}, by {short(driver)}"
    lacking = [limit for key, limit in _LIMITS.items() if not engine_info.info.get(key, True)]
    if not lacking:
        return ok(f"{what}: CPUs, memory and processes can be limited")
    fix = (
        "delegate the controllers to users: `sudo systemctl edit user@.service` with "
        "`[Service] Delegate=cpu cpuset io memory pids`, then log in again"
        if engine_info.is_rootless
        else "enable the missing cgroup controllers, such as by `cgroup_enable=memory` on the "
        "kernel's command line"
    )
    return warning(f"{what}: the engine cannot limit {', '.join(lacking)}", fix)


def find_image(plan: Plan) -> TaskImage:
    """Find the plan's image, and whether it exists or can be built.

    Raises:
        LabError: The engine does not answer, compose does not understand the file, or the image is
            one that the user has named and does not fit this lab.
    """
    from lab.backends.compose.cli import Compose  # noqa: PLC0415
    from lab.backends.compose.client import Engine  # noqa: PLC0415
    from lab.backends.compose.image_build import (  # noqa: PLC0415
        ImageStatus,
        can_pull,
        image_exists,
        image_of,
        image_status,
        size_of,
    )
    from lab.render.compose import render  # noqa: PLC0415

    engine = Engine()
    with TemporaryDirectory(prefix="lab-doctor-") as folder:
        file = Path(folder) / "docker-compose.yml"
        file.write_text(render(plan), encoding="utf-8")
        image = image_of(Compose(plan.name, file, Path.cwd()).config())
    size = size_of(image.tensorflow)
    size_bytes = None if size is None else size.image_mb * 10**6
    found, base_state = image_status(engine, image, plan), ""
    if found is not ImageStatus.FITS:
        if image_exists(engine, image.base):
            base_state = "is here"
        elif can_pull(engine, image.base):
            base_state = "can be fetched"
    exists, is_old = found is not ImageStatus.MISSING, found is ImageStatus.OLD
    return TaskImage(image.name, image.base, size_bytes, exists, is_old, base_state)


def judge_image(image: TaskImage) -> Outcome:
    """Whether the tasks' image exists, or can be built."""
    name, base = short(image.name), short(image.base)
    if image.is_here and not image.is_old:
        return ok(f"{name} is here")
    state, lacks, builds = f"{name} is not built yet", f"there is no image {name}", "builds it"
    if image.is_old:
        state = lacks = f"{name} holds another version of lab/task than this lab"
        builds = "builds it again"
    if image.base_state:
        return ok(f"{state}; its base {base} {image.base_state}, and the first run {builds}")
    return failed(
        f"{lacks}, and its base {base} cannot be fetched",
        "`tools/base-image.sh` makes a base without a registry; then "
        "`export LAB_BASE_IMAGE=lab-base:bookworm`",
        "no image",
    )


def judge_no_image(error: LabError | OSError) -> Outcome:
    """Why the tasks' image is not known."""
    if isinstance(error, LabError):
        return failed(error.what, error.mend, "no image")
    return warning(
        "the registry does not answer, and the image is not built",
        "build the base with `tools/base-image.sh`, then set LAB_BASE_IMAGE=lab-base:bookworm",
    )


def judge_disk(engine_disk: tuple[Path, int] | None, known_image: TaskImage | None) -> Outcome:
    """Whether the image fits on the engine's disk.

    Args:
        engine_disk: The directory of the engine's images, and its free bytes; None where the
            engine runs on another machine.
        known_image: The image that is needed, where it is known.
    """
    if engine_disk is None:
        return skipped("the engine runs on another machine")
    where, free = engine_disk
    what = f"{_gb(free)} free in {where}"
    fix = "see `docker system df`; free some with `docker image prune` and `docker builder prune`"
    missing = known_image is not None and not known_image.is_here
    size = (known_image.size_bytes or 0) if known_image is not None and missing else 0
    if free >= size + ROOM_BYTES:
        return ok(f"{what}; the image takes {_gb(size)}" if size else what)
    if missing:
        what = f"{what}, and the image takes {_gb(size)} and {_gb(ROOM_BYTES)} beside it"
        return failed(what, fix, "no room for the image")
    return warning(what, fix)


def judge_address_pools(engine_info: EngineInfo, routes: Sequence[tuple[Network, str]]) -> Outcome:
    """Whether the engine has an address range left for another network.

    The engine takes the first range of its pools that overlaps neither with a network of its own
    nor, where it runs on this machine, with a route of this machine.
    """
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
        what = f"this machine's routes take up {short(', '.join(by_route))}"
        fix = (
            'name other ranges under "default-address-pools" in /etc/docker/daemon.json, then '
            "`sudo systemctl restart docker`"
        )
    else:
        what = f"{len(engine_info.networks)} networks are there"
        fix = "remove unused networks with `docker network prune`"
    if left == 0:
        what = f"no address range is left for another network: {what}"
        return failed(what, fix, "no address range")
    shown = f"room for {count(left, 'more network')}"
    return warning(f"{shown}: {what}", fix) if left <= _FEW_NETWORKS else ok(shown)


def judge_environments(engine_info: EngineInfo) -> Outcome:
    """Whether there are environments whose containers have stopped."""
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


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version)[:2])


def _ranges(base: str, size: int) -> Iterator[Network]:
    network = ipaddress.IPv4Network(base, strict=False)
    # A pool may hold millions; the first 256 are enough to count.
    return islice(network.subnets(new_prefix=max(size, network.prefixlen)), 256)
