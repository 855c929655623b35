"""What a task was to see, and what it sees: the comparison. Nothing here asks anybody."""

from __future__ import annotations

from lab.pinning.seen import Sight
from lab.pinning.sources import NOTHING
from lab.pinning.verdicts import Verdict, Word, verdict

__all__ = ["NOTHING", "Sight", "Verdict", "Word", "verdict"]
