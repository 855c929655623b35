"""The health checks of containers: `python -S -m lab.task.probes.health task|anchor`.

A task is healthy while its network has an interface beside the loopback (one that was started again
without its anchor has none), its agent's heart beats and it may open the cards that it could open
at first; an anchor, once its link holds. In a container `/sys` shows its own interfaces.

To start a check costs an engine much more than to make it: eight containers that were asked once a
second took half a CPU. So the first check answers at once, which is what a boot waits for, and each
later one stays and looks once a second, until something is wrong or `WATCH_S` are over.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

WATCH_S: Final = 120.0
"""So long a check stays where the one before it was good; the rendered time-out is longer."""

SEEN_FILE: Final = Path("/tmp/lab-healthy")  # noqa: S108 (a container's own tmpfs)
READY_FILE: Final = Path("/tmp/lab-anchor-ready")  # noqa: S108 (a container's own tmpfs)
INTERFACES: Final = Path("/sys/class/net")
DEVICES: Final = Path("/dev")
GPUS_FILE: Final = Path("/tmp/lab-cards")  # noqa: S108 (a container's own tmpfs)
STALE_AFTER_S: Final = 15.0

_LOOK_S = 1.0
_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8


def gpu_nodes(devices: Path = DEVICES) -> dict[int, Path]:
    """Minor number of each NVIDIA GPU to its device node, ascending; `/dev/nvidiactl` is no GPU.

    Raises:
        OSError: The directory cannot be read.
    """
    found = {}
    for path in devices.iterdir():
        minor = path.name.removeprefix("nvidia")
        if minor != path.name and minor.isascii() and minor.isdecimal():
            found[int(minor)] = path
    return dict(sorted(found.items()))


def has_network(interfaces: Path = INTERFACES) -> bool:
    """Whether there is an interface that is up and not the loopback, whatever its name."""
    for path in interfaces.iterdir():
        flags = int((path / "flags").read_text(encoding="ascii"), 16)
        if flags & _IFF_UP and not flags & _IFF_LOOPBACK:
            return True
    return False


def has_fresh_heartbeat(heartbeat: Path) -> bool:
    """Whether an agent's heartbeat is fresh."""
    try:
        return time.time() - heartbeat.stat().st_mtime < STALE_AFTER_S
    except FileNotFoundError:
        return False


def lost_gpu(devices: Path = DEVICES, known: Path = GPUS_FILE) -> str | None:
    """A card that this container could open at the first check and cannot any more, with the mend.

    `systemctl daemon-reload` writes a container's device permissions anew where systemd keeps the
    cgroups, and does not know the cards that NVIDIA's hook has let in. `access` asks for the same
    permission as `open` and, unlike it, wakes no card.

    Args:
        devices: Where device nodes lie.
        known: Where the first check writes down what it finds.
    """
    try:
        first = known.read_text(encoding="ascii").split()
    except FileNotFoundError:
        usable = [str(path) for path in gpu_nodes(devices).values() if _may_open(path)]
        known.write_text("\n".join(usable), encoding="ascii")
        return None
    for name in first:
        path = Path(name)
        if not path.exists():
            return f"GPU lost: {name} is gone; {_fix()}"
        if not _may_open(path):
            return f"GPU lost: {name} cannot be opened any more, permission denied; {_fix()}"
    return None


def _may_open(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


def _fix() -> str:
    container = f"{os.environ.get('LAB_PROJECT', '')}-{os.environ['LAB_TASK']}-1"
    return f"`docker restart {container}` brings it back until the next `systemctl daemon-reload`"


def main(argv: list[str]) -> int:
    """0 healthy, 1 not, 2 wrong usage; the reason stands on standard output."""
    if argv not in (["task"], ["anchor"]):
        sys.stderr.write("usage: python -m lab.task.probes.health task|anchor\n")
        return 2
    (what,) = argv
    fault = _fault(what)
    give_up = time.monotonic() + (WATCH_S if SEEN_FILE.exists() else 0.0)
    while fault is None and time.monotonic() < give_up:
        time.sleep(_LOOK_S)
        fault = _fault(what)
    if fault is None:
        SEEN_FILE.touch()
        return 0
    # The next check answers at once again: a container that recovers is not kept waiting.
    SEEN_FILE.unlink(missing_ok=True)
    sys.stdout.write(fault + "\n")
    return 1


def _fault(what: str) -> str | None:
    if not has_network():
        return "no network interface beside the loopback; restart this container"
    if what == "anchor":
        return None if READY_FILE.exists() else "the link does not hold yet"
    heartbeat = Path(os.environ["LAB_RUNS"]) / "agents" / f"{os.environ['LAB_TASK']}.json"
    return lost_gpu() if has_fresh_heartbeat(heartbeat) else "the agent's heart does not beat"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
