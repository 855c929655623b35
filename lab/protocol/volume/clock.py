"""The time of day that all hosts of a run share, and a stopwatch for values that do not change.

The clocks of hosts may differ. So in a job of Slurm, all hosts take the time from their shared file
system, once, and then add the time that has passed. Its directory is named by a variable::

    LAB_CLOCK   a directory that all hosts see, and that their user owns

Without it, all tasks run on one host, and the time is that of its clock.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

from lab.base.variables import LAB_CLOCK

_LONGEST_LOOK_S: Final = 1.0


def unix_time() -> float:
    """Return the time of day, in seconds since the epoch.

    Raises:
        OSError: The directory of `LAB_CLOCK` cannot be used.
    """
    directory = os.environ.get(LAB_CLOCK, "")
    return time.monotonic() + _zero_of(directory) if directory else time.time()


def file_system_time(directory: Path) -> float:
    """Return the time of day of a file system, in seconds since the epoch.

    Args:
        directory: A directory of this user; its modification time changes.

    Raises:
        OSError: The directory cannot be used.
    """
    os.utime(directory)  # without a time, a file server uses its own
    return directory.stat().st_mtime


@cache
def _zero_of(directory: str) -> float:
    """The time of day at which this host's monotonic clock was 0."""
    return file_system_time(Path(directory)) - time.monotonic()


def stamp(unix: float) -> str:
    """Format seconds since the epoch as `2026-11-21T14:25:14.123456Z`, which sorts as text."""
    at = datetime.fromtimestamp(unix, UTC)
    return at.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


class Stopwatch:
    """Measures for how long a value has stayed the same.

    It uses a monotonic clock, and each look counts at most one second. So a process that was itself
    paused for a minute does not take the others for late, lost or stalled.

    Attributes:
        value: The value at the last look; None before it.
        seconds: The seconds for which it has stayed the same.
    """

    def __init__(self) -> None:
        self.value: object = None
        self.seconds = 0.0
        self._looked_at = time.monotonic()

    def look(self, value: object = None, *, counts: bool = True) -> float:
        """Return the seconds for which the value has stayed the same.

        Args:
            value: The value now.
            counts: Whether the time counts; otherwise the seconds begin again.
        """
        now = time.monotonic()
        passed_s = min(now - self._looked_at, _LONGEST_LOOK_S)
        self._looked_at = now
        self.seconds = self.seconds + passed_s if counts and value == self.value else 0.0
        self.value = value
        return self.seconds
