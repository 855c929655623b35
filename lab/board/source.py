"""What a board shows, as the bytes that its viewers get."""

from __future__ import annotations

from typing import Protocol

import msgspec

from lab.board.run_view import RunBoard
from lab.errors import LabError


class Feed(Protocol):
    """Knows what a run does now."""

    def now(self) -> RunBoard | None:
        """Return the run as it is now; None: there is no run."""


def encoded(feed: Feed) -> bytes:
    """Return what a board shows as JSON on one line; a run that cannot be read now is none."""
    try:
        run = feed.now()
    except (LabError, OSError):
        run = None
    return msgspec.json.encode({"run": run})
