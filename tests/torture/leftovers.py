"""Leftovers of a run, and their forced removal."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from tests.support import engine as engines
from tests.torture import processes
from tests.torture.case import COMPOSE, Fault
from tests.torture.place import Place

SETTLE_S: Final = 3.0
"""Time in which the kernel and the engine remove their parts themselves, in seconds."""

_LABELS: Final = ("lab.project", "com.docker.compose.project")
_LISTS: Final = {
    "container": ("ls", "--all", "--format={{.Names}}"),
    "network": ("ls", "--format={{.Name}}"),
    "volume": ("ls", "--format={{.Name}}"),
}
"""The kinds of objects in the engine, those first that use others, and how it lists them."""

_REMOVE: Final = {"container": ("rm", "--force", "--volumes")}


def left(place: Place) -> list[str]:
    """What is left after `SETTLE_S` seconds, each as a text."""
    deadline = time.monotonic() + SETTLE_S
    while (now := [*_now(place)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return now


def clear(place: Place) -> None:
    own = _own(place)
    for process in own:
        processes.signalled(process, signal.SIGKILL)
    for kind, name in _in_engine(place):
        remove = ["docker", kind, *_REMOVE.get(kind, ("rm",)), name]
        subprocess.run(remove, check=False, capture_output=True)
    psutil.wait_procs(own, timeout=SETTLE_S)
    engines.wipe(place.folder)


def _now(place: Place) -> Iterator[str]:
    for process in _own(place):
        yield f"process {process.pid} ({' '.join(process.info['cmdline'] or ())[:100]})"
    if place.case.fault is not Fault.READ_ONLY:  # nothing can be removed from it
        yield from (f"directory {path}" for path in place.state.glob(f"*/{place.case.project}"))
    yield from (f"file {path}" for path in (place.folder / "tmp").iterdir())
    for disk in psutil.disk_partitions(all=True):
        mount = Path(disk.mountpoint)
        # The harness's own mount is removed later.
        if mount.is_relative_to(place.folder) and mount != place.state:
            yield f"mount {mount}"
    yield from (f"{kind} {name}" for kind, name in _in_engine(place))


def _own(place: Place) -> list[psutil.Process]:
    """Processes that know the run's state directory, or its project from inside a container."""
    by_state = processes.having(LAB_STATE=str(place.state))
    return [*{*by_state, *processes.having(LAB_PROJECT=place.case.project)}]


def _in_engine(place: Place) -> Iterator[tuple[str, str]]:
    if place.case.backend != COMPOSE:
        return
    for kind, words in _LISTS.items():
        labels = [f"--filter=label={label}={place.case.project}" for label in _LABELS]
        printed = [engines.run(["docker", kind, *words, label]) for label in labels]
        yield from ((kind, name) for name in sorted({*"".join(printed).split()}))
