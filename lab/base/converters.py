"""Parse functions for values on the command line; a ValueError names what is expected."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from lab.base.units import SECONDS, duration_s

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_MOST: Final = 10**18 - 1  # Python rejects numbers of thousands of digits


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


def whole(least: int, most: int = _MOST) -> Callable[[str], int]:
    """Return a parse function for whole numbers from `least` to `most`."""
    end = f" to {most:,}" if most < _MOST else ""

    def parse_limited(raw: str) -> int:
        plain = raw.isascii() and raw.isdigit() and len(raw) <= len(str(most))
        if not plain or not least <= int(raw) <= most:
            raise ValueError(f"a whole number from {least}{end}")
        return int(raw)

    return parse_limited


@dataclass(frozen=True, slots=True)
class OneOf:
    """A parse function that accepts only some values; shell completion offers them.

    Attributes:
        names: Returns the values.
        usual: Those of them for which `names` need not be called, because it takes long.
    """

    names: Callable[[], tuple[str, ...]]
    usual: Collection[str] = ()

    @property
    def choices(self) -> tuple[str, ...]:
        """The values."""
        return self.names()

    def __call__(self, raw: str) -> str:
        """Return the value, if it is one of the choices."""
        if raw not in self.usual and raw not in self.choices:
            *others, last = self.choices
            raise ValueError(f"{', '.join(others)} or {last}" if others else last)
        return raw


def one_of(*choices: str) -> OneOf:
    """Return a parse function that accepts only these values."""
    return OneOf(lambda: choices)


def counts(most: int) -> Callable[[str], tuple[int, ...]]:
    """Return a parse function for different whole numbers from 1: `1,8,64`."""

    def parse_counts(raw: str) -> tuple[int, ...]:
        try:
            return tuple(dict.fromkeys(whole(1, most)(item.strip()) for item in raw.split(",")))
        except ValueError:
            raise ValueError(f"whole numbers from 1 to {most}, such as 1,8,64") from None

    return parse_counts


def duration(raw: str) -> float:
    """Return the seconds of a duration, `90s`, `1h30m`, or of a plain number of seconds.

    Raises:
        ValueError: The text is neither.
    """
    seconds = float(raw) if re.fullmatch(SECONDS, raw) else duration_s(raw)
    if seconds is None:
        raise ValueError("a duration (90s, 5m, 1h30m), or a number of seconds")
    return seconds


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
