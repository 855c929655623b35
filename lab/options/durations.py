"""Parse times and durations: `10m`, `1h30m`, `14:05`, `2026-11-21T14:05:00Z`."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final

from lab.units import duration, duration_s

__all__ = ["duration", "point_in_time"]

_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


def point_in_time(raw: str) -> float:
    """Parse a time, or a duration before now. A time without a zone is local time.

    Returns:
        Seconds since the epoch.

    Raises:
        ValueError: The text is neither.
    """
    seconds = duration_s(raw)
    if seconds is not None:
        return time.time() - seconds
    try:
        if _CLOCK.fullmatch(raw):
            hours, _, rest = raw.partition(":")
            today = f"{datetime.now().astimezone():%Y-%m-%d}"
            return datetime.fromisoformat(f"{today}T{hours:0>2}:{rest}").astimezone().timestamp()
        if "-" in raw:
            return datetime.fromisoformat(raw).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError("a duration (10m, 1h30m) or a time (14:05, 2026-11-21T14:05:00)")
