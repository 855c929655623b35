"""Parse times and durations: `10m`, `1h30m`, `14:05`, `2026-11-21T14:05:00Z`."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final

_DURATION: Final = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?")
_UNITS_S: Final = (86_400, 3_600, 60, 1)
_SECONDS: Final = re.compile(r"\d{1,8}(?:\.\d{1,6})?")
_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


def point_in_time(raw: str) -> float:
    """Parse a time, or a duration before now. A time without a zone is local time.

    Returns:
        Seconds since the epoch.

    Raises:
        ValueError: The text is neither.
    """
    seconds = _duration_s(raw)
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


def duration(raw: str) -> float:
    """Return the seconds of a duration, `90s`, `1h30m`, or of a plain number of seconds.

    Raises:
        ValueError: The text is neither.
    """
    seconds = float(raw) if _SECONDS.fullmatch(raw) else _duration_s(raw)
    if seconds is None:
        raise ValueError("a duration (90s, 5m, 1h30m), or a number of seconds")
    return seconds


def _duration_s(raw: str) -> float | None:
    """Return the seconds of `1h30m`; None for any other text."""
    match = _DURATION.fullmatch(raw)
    if not raw or match is None:
        return None
    return float(sum(int(n) * unit for n, unit in zip(match.groups("0"), _UNITS_S, strict=True)))
