"""What a board shows, a run or a class, as the bytes that its viewers get."""

from __future__ import annotations

from typing import Protocol

import msgspec

from lab.errors import LabError
from lab.text import short


class Feed(Protocol):
    """Knows what a run or a class does now."""

    def now(self) -> msgspec.Struct | None:
        """Return it as it is now; None: there is no run."""


def encoded(name: str, feed: Feed) -> bytes:
    """Return what a board shows as JSON on one line, or why it cannot be read now.

    Args:
        name: What the page shows: `run` or `class`.
        feed: Knows it.
    """
    found, problem = None, ""
    try:
        found = feed.now()
    except (LabError, OSError) as error:
        problem = short(str(error))
    return msgspec.json.encode({name: found, "problem": problem})
