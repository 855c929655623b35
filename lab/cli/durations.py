"""Times as people write them: `10m`, `1h30m`, `14:05`, `2026-11-21T14:05:00Z`."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final

_SPAN: Final = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?")
_UNITS_S: Final = (86_400, 3_600, 60, 1)
_SECONDS: Final = re.compile(r"\d{1,8}(?:\.\d{1,6})?")
_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


def point_in_time(raw: str) -> float:
    """Seconds since the epoch of a time, or of a span before now; local time unless it says more.

    Raises:
        ValueError: It is neither.
    """
    span = _span(raw)
    if span is not None:
        return time.time() - span
    try:
        if _CLOCK.fullmatch(raw):
            hours, _, rest = raw.partition(":")
            today = f"{datetime.now().astimezone():%Y-%m-%d}"
            return datetime.fromisoformat(f"{today}T{hours:0>2}:{rest}").astimezone().timestamp()
        if "-" in raw:
            return datetime.fromisoformat(raw).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError("a span (10m, 1h30m) or a time (14:05, 2026-11-21T14:05:00)")


def duration(raw: str) -> float:
    """Seconds of a span, `90s`, `1h30m`, or of a bare number of seconds.

    Raises:
        ValueError: It is neither.
    """
    span = float(raw) if _SECONDS.fullmatch(raw) else _span(raw)
    if span is None:
        raise ValueError("a time (90s, 5m, 1h30m), or seconds")
    return span


def _span(raw: str) -> float | None:
    """Seconds of `1h30m`; None for anything else."""
    span = _SPAN.fullmatch(raw)
    if not raw or span is None:
        return None
    return float(sum(int(n) * unit for n, unit in zip(span.groups("0"), _UNITS_S, strict=True)))
