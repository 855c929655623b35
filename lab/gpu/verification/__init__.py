"""What a task was to see, and what it sees: the comparison. Nothing here asks anybody."""

from __future__ import annotations

from lab.gpu.verification.evidence import NOTHING
from lab.gpu.verification.observed import Sight
from lab.gpu.verification.verdicts import Verdict, Word, verdict

__all__ = ["NOTHING", "Sight", "Verdict", "Word", "verdict"]
