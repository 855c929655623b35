"""The health checks of containers: `python -S -m lab.task.node.health task|anchor`.

A task is healthy under three conditions. Its network has an interface besides the loopback (a task
that restarted without its anchor has none). Its agent's heartbeat is fresh. It can open the GPUs
that it could open at first. An anchor is healthy when its link is applied. In a container `/sys`
shows the container's own interfaces.

For an engine, starting a check costs much more than the check itself: one check per second in eight
containers used half a CPU. So the first check returns at once, because a boot waits for it. Each
later check runs on and tests once a second, until a test fails or `WATCH_S` are over.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Final

from lab.base.variables import LAB_PROJECT, LAB_RUNS, LAB_TASK

WATCH_S: Final = 120.0
"""Seconds that a check runs after a successful one; the rendered time-out is longer."""

SEEN_FILE: Final = Path("/tmp/lab-healthy")  # noqa: S108 (a container's own tmpfs)
READY_FILE: Final = Path("/tmp/lab-anchor-ready")  # noqa: S108 (a container's own tmpfs)
INTERFACES: Final = Path("/sys/class/net")
DEVICES: Final = Path("/dev")
GPUS_FILE: Final = Path("/tmp/lab-gpus")  # noqa: S108 (a container's own tmpfs)
STALE_AFTER_S: Final = 15.0

_LOOK_S = 1.0
_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8


def gpu_nodes(devices: Path = DEVICES) -> list[Path]:
    """The device nodes of the NVIDIA GPUs; `/dev/nvidiactl` is not one.

    Raises:
        OSError: The directory cannot be read.
    """
    return sorted(path for path in devices.iterdir() if re.fullmatch("nvidia[0-9]+", path.name))


def has_network(interfaces: Path = INTERFACES) -> bool:
    """Whether an interface other than the loopback is up."""
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
    """A message about a GPU that this container could open at first and cannot open now, or None.

    Where systemd manages the cgroups, `systemctl daemon-reload` rewrites a container's device
    permissions without the GPUs that NVIDIA's hook added. `access` checks the same permission as
    `open`, but does not wake the GPU.

    Args:
        devices: The directory of the device nodes.
        known: The file into which the first check writes the usable GPUs.
    """
    try:
        first = known.read_text(encoding="ascii").split()
    except FileNotFoundError:
        usable = [str(path) for path in gpu_nodes(devices) if _may_open(path)]
        known.write_text("\n".join(usable), encoding="ascii")
        return None
    for path in map(Path, first):
        if not _may_open(path):
            fault = "cannot be opened: permission denied" if path.exists() else "is missing"
            container = f"{os.environ.get(LAB_PROJECT, '')}-{os.environ[LAB_TASK]}-1"
            fix = f"run `docker restart {container}`"
            repeat = "repeat it after each `systemctl daemon-reload`"
            return f"GPU lost: {path} {fault}; {fix}; {repeat}"
    return None


def _may_open(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


def main(argv: list[str]) -> int:
    """Run a check and print the reason of a failure.

    Returns:
        0 if healthy, 1 if not, 2 for wrong usage.
    """
    if argv not in (["task"], ["anchor"]):
        sys.stderr.write("usage: python -m lab.task.node.health task|anchor\n")
        return 2
    (check,) = argv
    fault = _fault(check)
    give_up = time.monotonic() + (WATCH_S if SEEN_FILE.exists() else 0.0)
    while fault is None and time.monotonic() < give_up:
        time.sleep(_LOOK_S)
        fault = _fault(check)
    if fault is None:
        SEEN_FILE.touch()
        return 0
    # The next check returns at once again, so a recovered container is healthy soon.
    SEEN_FILE.unlink(missing_ok=True)
    sys.stdout.write(fault + "\n")
    return 1


def _fault(check: str) -> str | None:
    if not has_network():
        return "no network interface besides the loopback; restart this container"
    if check == "anchor":
        return None if READY_FILE.exists() else "the link is not applied yet"
    heartbeat = Path(os.environ[LAB_RUNS]) / "agents" / f"{os.environ[LAB_TASK]}.json"
    return (
        lost_gpu()
        if has_fresh_heartbeat(heartbeat)
        else "the agent's heartbeat is missing or too old"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
