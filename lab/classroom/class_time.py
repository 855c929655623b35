"""The end of a class: a file that the teacher's commands write, and that each seat can read.

The file `time.json` is in a directory of the class. Each seat mounts this directory read-only, so
nothing in a seat changes the end. It contains `{"ends_unix": 1796130000.0}`, or null: no end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from lab.errors import InputError, LabError
from lab.formatting import about
from lab.log import LOG
from lab.text import short
from lab.units import duration_s
from lab.volume.files import atomic_writer, read_regular

IN_SEAT: Final = Path("/srv/lab-class")
"""Where a seat mounts the directory with the file."""

OVER: Final = "the time of the class is over"

_FILE: Final = "time.json"
_MAX_BYTES: Final = 1000
_LONGEST_S: Final = 7 * 86_400


class _Times(msgspec.Struct, frozen=True):
    ends_unix: float | None


def read_end(folder: Path) -> float | None:
    """Return the end of a class in seconds since the epoch; None: it has none.

    Args:
        folder: The directory with the file.

    Raises:
        LabError: The file cannot be read.
    """
    path = folder / _FILE
    try:
        return msgspec.json.decode(read_regular(path, _MAX_BYTES), type=_Times).ends_unix
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise LabError(
            f"{path} cannot be read: {short(str(error))}", "set the end with `lab class time 45m`"
        ) from error


def write_end(folder: Path, ends_unix: float | None) -> None:
    """Write the end of a class, in seconds since the epoch; None: it has none.

    Raises:
        OSError: The file cannot be written.
    """
    with atomic_writer(folder / _FILE) as file:
        os.fchmod(file.fileno(), 0o644)  # the seats have another user
        file.write(msgspec.json.encode(_Times(ends_unix)))


class LastEnd:
    """The end of a class for a service: while its file cannot be read, the last end counts."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Read the file in a directory.

        Args:
            folder: The directory with the file.
            clock: Returns seconds since the epoch.
        """
        self._folder, self._clock = folder, clock
        self._ends_unix: float | None = None
        self._problem = ""

    def is_over(self) -> bool:
        """Read the end; return whether it has passed."""
        problem = ""
        try:
            self._ends_unix = read_end(self._folder)
        except LabError as error:
            problem = str(error)
            if problem != self._problem:
                LOG.error(problem)
        self._problem = problem
        return self._ends_unix is not None and self._clock() >= self._ends_unix


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


def left_s(ends_unix: float | None) -> float | None:
    """Return the seconds until the end of a class, 0 after it; None: it has no end."""
    return None if ends_unix is None else max(0.0, ends_unix - time.time())


def left_text(ends_unix: float | None) -> str:
    """Return the time left for people: `35 min left`."""
    seconds = left_s(ends_unix)
    if seconds is None:
        return "the class has no end"
    return f"{about(seconds)} left" if seconds else OVER
