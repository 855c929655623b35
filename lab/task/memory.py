"""Whether the kernel has killed a process because the memory ran out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

COUNTERS: Final = (
    Path("/sys/fs/cgroup/memory.events"),  # cgroup v2
    Path("/sys/fs/cgroup/memory/memory.oom_control"),  # cgroup v1
)


def kills(counters: Sequence[Path] = COUNTERS) -> int | None:
    """How often that has happened in this process's cgroup; None where it is not told.

    Args:
        counters: Files with a line `oom_kill N`; the first that has one counts.
    """
    for path in counters:
        try:
            lines = path.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdecimal():
                return int(count)
    return None
