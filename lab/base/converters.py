"""Parse functions for values on the command line; a ValueError names what is expected."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final

from lab.base import units
from lab.base.units import duration_s

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
whole = units.whole
OneOf = units.OneOf
one_of = units.one_of
_MAX_DIGITS = 18  # Python rejects numbers of thousands of digits


def text(raw: str) -> str:
    """Return a non-empty text unchanged: `1.10` stays `1.10`."""
    if not raw:
        raise ValueError("a value")
    return raw


def boolean(raw: str) -> bool:
    """Parse `true` or `false`, also `yes`, `no`, `on`, `off`, `1`, `0`."""
    lower = raw.lower()
    if lower not in _TRUE | _FALSE:
        raise ValueError("true or false")
    return lower in _TRUE


def count(raw: str) -> int:
    """Parse a whole number, 0 or more."""
    if not (raw.isascii() and raw.isdigit() and len(raw) <= _MAX_DIGITS):
        raise ValueError("a whole number, 0 or more")
    return int(raw)


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
