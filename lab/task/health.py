"""The health checks of containers: `python -S -m lab.task.health task|anchor`.

They run once a second in every container, so they read a few small files and import next to
nothing. A task is healthy while its network has an interface beside the loopback (one that was
started again without its anchor has none) and its agent's heart beats; an anchor, once its link
holds. In a container `/sys` shows the container's own interfaces.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

READY_FILE: Final = Path("/tmp/lab-anchor-ready")  # noqa: S108 (a container's own tmpfs)
INTERFACES: Final = Path("/sys/class/net")
STALE_AFTER_S: Final = 15.0

_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8


def has_network(interfaces: Path = INTERFACES) -> bool:
    """Whether there is an interface that is up and not the loopback, whatever its name."""
    for path in interfaces.iterdir():
        flags = int((path / "flags").read_text(encoding="ascii"), 16)
        if flags & _IFF_UP and not flags & _IFF_LOOPBACK:
            return True
    return False


def beats(presence: Path) -> bool:
    """Whether an agent's heartbeat is fresh."""
    try:
        return time.time() - presence.stat().st_mtime < STALE_AFTER_S
    except FileNotFoundError:
        return False


def main(argv: list[str]) -> int:
    """0 healthy, 1 not, 2 wrong usage; the reason stands on standard output."""
    if argv not in (["task"], ["anchor"]):
        sys.stderr.write("usage: python -m lab.task.health task|anchor\n")
        return 2
    if not has_network():
        return _unhealthy("no network interface beside the loopback; restart this container")
    if argv == ["anchor"]:
        return 0 if READY_FILE.exists() else _unhealthy("the link does not hold yet")
    presence = Path(os.environ["LAB_RUNS"]) / "agents" / f"{os.environ['LAB_TASK']}.json"
    return 0 if beats(presence) else _unhealthy("the agent's heart does not beat")


def _unhealthy(reason: str) -> int:
    sys.stdout.write(reason + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
