"""How a program is stopped: the first verdict stays, SIGTERM follows, and then SIGKILL."""

from __future__ import annotations

import signal
import time
from typing import Final

from lab.task.disturbance import Victim
from lab.task.verdicts import Verdict

GRACE_S: Final = 5.0
"""From SIGTERM to SIGKILL."""


class Stopping:
    """When a program gets which signal, and what its task has ended with.

    Attributes:
        verdict: How the task ends, whatever its program's exit code will be; None: nobody stops it.
    """

    def __init__(self) -> None:
        self.verdict: Verdict | None = None
        self._term_at: float | None = None
        self._kill_at: float | None = None

    def decide(self, verdict: Verdict, *, grace_s: float, patiently: bool) -> None:
        """Stop the program; whoever comes later can only make it sooner.

        Args:
            verdict: How the task ends; the first one stays.
            grace_s: Seconds from SIGTERM to SIGKILL; 0 kills at once.
            patiently: SIGTERM waits for the others' end, but no longer than the grace.
        """
        now = time.monotonic()
        if self.verdict is None:
            self.verdict = verdict
            self._term_at = now + (grace_s if patiently else 0.0)
        if grace_s == 0 or self._kill_at is None:
            self._kill_at = (now if grace_s == 0 else self._term_at or now) + grace_s

    def press(self, program: Victim, *, alone: bool) -> None:
        """Send the signal that is due.

        Args:
            program: What is to end.
            alone: Whether the others have ended, so that nobody needs it any more.
        """
        now = time.monotonic()
        if self._kill_at is not None and now >= self._kill_at:
            program.signal(signal.SIGKILL)
        elif self._term_at is not None and (now >= self._term_at or alone):
            program.signal(signal.SIGTERM)
            self._term_at = None
            self._kill_at = now + GRACE_S
