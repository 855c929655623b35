"""Leftovers of a run, and their forced removal."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from tests.torture import processes
from tests.torture.case import Fault
from tests.torture.place import Place

if TYPE_CHECKING:
    from docker import DockerClient

SETTLE_S: Final = 3.0
"""Time in which the kernel and the engine remove their parts themselves, in seconds."""

_LABELS: Final = ("lab.project", "com.docker.compose.project")
_MOUNTS: Final = Path("/proc/self/mounts")


def left(place: Place, client: DockerClient | None) -> tuple[str, ...]:
    """What is left after `SETTLE_S` seconds, each as a text; `client`: the engine, if used."""
    deadline = time.monotonic() + SETTLE_S
    while (found := tuple(_now(place, client))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def clear(place: Place, client: DockerClient | None) -> None:
    """Remove whatever there is, by force."""
    for process in _own(place):
        processes.signalled(process, signal.SIGKILL)
    if client is not None:
        from docker.errors import APIError  # noqa: PLC0415  (only where there is an engine)

        for _, each in _in_engine(place.case.project, client):
            with suppress(APIError):
                each.remove(**({"force": True, "v": True} if hasattr(each, "kill") else {}))
    for mount in _mounts(place.folder):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
    for path in (place.state, place.folder / "tmp"):
        shutil.rmtree(path, ignore_errors=True)


def preserve(place: Place, client: DockerClient | None) -> None:
    """Copy the files of a failed run before they are removed."""
    kept = place.folder / "evidence"
    kept.mkdir()
    told = "".join(f"{processes.describe(process)}\n" for process in _own(place))
    (kept / "processes").write_text(told, encoding="utf-8")
    (place.state / "filler").unlink(missing_ok=True)
    # As they are: a link may lead to a file without end.
    subprocess.run(["cp", "--archive", place.state, kept], check=False, capture_output=True)
    if client is not None:
        for kind, each in _in_engine(place.case.project, client):
            if kind == "container":
                (kept / str(each.name)).write_bytes(each.logs())


def _now(place: Place, client: DockerClient | None) -> Iterator[str]:
    project = place.case.project
    yield from map(processes.describe, _own(place))
    if place.case.fault is not Fault.READ_ONLY:  # nothing can be removed from it
        yield from (f"directory {path}" for path in place.state.glob(f"*/{project}"))
    yield from (f"file {path}" for path in (place.folder / "tmp").iterdir())
    # The harness's own mounts are removed later.
    yield from (f"mount {each}" for each in _mounts(place.folder) if Path(each) != place.state)
    if client is not None:
        yield from (f"{kind} {each.name}" for kind, each in _in_engine(project, client))


def _own(place: Place) -> list[psutil.Process]:
    """Processes that know the run's state directory, or its project from inside a container."""
    known = processes.having(LAB_STATE=str(place.state))
    return [
        *known,
        *(p for p in processes.having(LAB_PROJECT=place.case.project) if p not in known),
    ]


def _mounts(folder: Path) -> list[str]:
    points = [line.split()[1] for line in _MOUNTS.read_text(encoding="utf-8").splitlines()]
    return [point for point in reversed(points) if Path(point).is_relative_to(folder)]


def _in_engine(project: str, client: DockerClient) -> list[tuple[str, Any]]:
    """Kind and object: containers first, which use the others."""
    found: dict[str, tuple[str, Any]] = {}
    for kind, several in (
        ("container", lambda wanted: client.containers.list(True, filters=wanted)),
        ("network", lambda wanted: client.networks.list(filters=wanted)),
        ("volume", lambda wanted: client.volumes.list(filters=wanted)),
    ):
        for label in _LABELS:
            for each in several({"label": f"{label}={project}"}):
                found[f"{kind} {each.name}"] = (kind, each)
    return list(found.values())
