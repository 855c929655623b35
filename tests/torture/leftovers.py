"""Leftovers of a run, and their forced removal."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.torture import processes
from tests.torture.case import Fault
from tests.torture.place import Place

if TYPE_CHECKING:
    from docker import DockerClient

SETTLE_S: Final = 3.0
"""Time in which the kernel and the engine remove their parts themselves, in seconds."""

_LABELS: Final = ("lab.project", "com.docker.compose.project")
_MOUNTS: Final = Path("/proc/self/mounts")


def left(
    place: Place, client: DockerClient | None, *, sleep: Callable[[float], None] = time.sleep
) -> tuple[str, ...]:
    """The remaining leftovers, each as a text.

    Args:
        place: Where the run was.
        client: The engine, where it was used.
        sleep: Waits.
    """
    deadline = time.monotonic() + SETTLE_S
    while (found := _now(place, client)) and time.monotonic() < deadline:
        sleep(0.1)
    return found


def clear(place: Place, client: DockerClient | None) -> None:
    """Remove whatever there is, by force."""
    for pid in _own(place):
        process = processes.opened(pid)
        if process is not None:
            process.signal(signal.SIGKILL)
            process.close()
    if client is not None:
        _clear_engine(place, client)
    for mount in _mounts(place.folder):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
    for path in (place.state, place.folder / "tmp"):
        shutil.rmtree(path, ignore_errors=True)


def preserve(place: Place, client: DockerClient | None) -> None:
    """Copy the files of a failed run before they are removed."""
    kept = place.folder / "evidence"
    kept.mkdir()
    told = "".join(f"{processes.describe(pid)}\n" for pid in _own(place))
    (kept / "processes").write_text(told, encoding="utf-8")
    shutil.copytree(place.state, kept / "state", ignore=shutil.ignore_patterns("ballast"))
    if client is not None:
        wanted = _labelled(_LABELS[0], place.case.project)
        for container in client.containers.list(all=True, filters=wanted, ignore_removed=True):
            (kept / str(container.name)).write_bytes(container.logs())


def _now(place: Place, client: DockerClient | None) -> tuple[str, ...]:
    project = place.case.project
    found = [processes.describe(pid) for pid in _own(place)]
    if place.case.fault is not Fault.READ_ONLY:  # nothing can be removed from it
        found += [f"directory {path}" for path in place.state.glob(f"*/{project}")]
    found += [f"file {path}" for path in (place.folder / "tmp").iterdir()]
    # The harness's own mounts are removed later.
    found += [f"mount {mount}" for mount in _mounts(place.folder) if Path(mount) != place.state]
    if client is not None:
        found += _in_engine(project, client)
    return tuple(found)


def _own(place: Place) -> list[int]:
    """Processes that know the run's state directory, or its project from inside a container."""
    known = processes.having(LAB_STATE=str(place.state))
    return [
        *known,
        *(p for p in processes.having(LAB_PROJECT=place.case.project) if p not in known),
    ]


def _mounts(folder: Path) -> list[str]:
    points = [line.split()[1] for line in _MOUNTS.read_text(encoding="utf-8").splitlines()]
    return [point for point in reversed(points) if Path(point).is_relative_to(folder)]


def _in_engine(project: str, client: DockerClient) -> list[str]:
    found = set()
    for label in _LABELS:
        wanted = _labelled(label, project)
        for each in client.containers.list(all=True, filters=wanted, ignore_removed=True):
            found.add(f"container {each.name}")
        for network in client.networks.list(filters=wanted):
            found.add(f"network {network.name}")
        for volume in client.volumes.list(filters=wanted):
            found.add(f"volume {volume.name}")
    return sorted(found)


def _clear_engine(place: Place, client: DockerClient) -> None:
    from docker.errors import APIError  # noqa: PLC0415  (only where there is an engine)

    wanted = _labelled(_LABELS[0], place.case.project)
    for container in client.containers.list(all=True, filters=wanted, ignore_removed=True):
        with suppress(APIError):
            container.remove(force=True, v=True)
    for network in client.networks.list(filters=wanted):
        with suppress(APIError):
            network.remove()
    for volume in client.volumes.list(filters=wanted):
        with suppress(APIError):
            volume.remove(force=True)


def _labelled(label: str, project: str) -> dict[str, Any]:
    return {"label": f"{label}={project}"}
