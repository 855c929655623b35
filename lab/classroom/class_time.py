"""The end of a class, for the countdown of its board. Nothing ends by itself."""

from __future__ import annotations

from typing import Final

from lab.errors import InputError
from lab.text import short
from lab.units import duration_s

_LONGEST_S: Final = 7 * 86_400


def changed_end(text: str, ends_unix: float | None, now: float) -> float | None:
    """Return the new end of a class; None: none.

    Args:
        text: `45m` from now, `+15m` later than it is or than now, or `off`.
        ends_unix: The end so far, in seconds since the epoch.
        now: The time, in seconds since the epoch.

    Raises:
        InputError: The text is none of these, or there is no end to extend.
    """
    if text == "off":
        return None
    seconds = duration_s(text.removeprefix("+"))
    if seconds is None or not 1 <= seconds <= _LONGEST_S:
        raise InputError(
            f"no time from 1s to 7d: {short(text)!r}",
            "use a duration such as 45m or 1h30m, +15m to extend the class, or off",
        )
    if not text.startswith("+"):
        return now + seconds
    if ends_unix is None:
        raise InputError("the class has no end to extend", "set one with `lab class time 45m`")
    return max(ends_unix, now) + seconds
