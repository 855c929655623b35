"""The signals that stop a program, and when they are due."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import Final

from lab.task.agent.outcomes import TaskOutcome

GRACE_S: Final = 5.0
"""Seconds from SIGTERM to SIGKILL."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The stop of a program.

    Attributes:
        outcome: How its task ends.
        term_at: When SIGTERM is due, on the monotonic clock in seconds; None: it was sent.
        kill_at: When SIGKILL is due.
    """

    outcome: TaskOutcome
    term_at: float | None
    kill_at: float

    @classmethod
    def begin(
        cls, outcome: TaskOutcome, now: float, *, grace_s: float, after_peers: bool
    ) -> Shutdown:
        """Decide a stop.

        Args:
            outcome: How the task ends.
            now: The time.
            grace_s: Seconds from SIGTERM to SIGKILL; 0 kills at once.
            after_peers: Delay SIGTERM until the other tasks have ended, at most by the grace.
        """
        term_at = now + grace_s if after_peers else now
        return cls(outcome, term_at, term_at + grace_s)

    def at_once(self, now: float) -> Shutdown:
        """The same stop without a further grace period."""
        return replace(self, kill_at=now)

    def due(self, now: float, *, alone: bool) -> tuple[Shutdown, signal.Signals | None]:
        """Return the signal that is due, or None, and the stop after it.

        Args:
            now: The time.
            alone: Whether all other tasks have ended.
        """
        if now >= self.kill_at:
            return self, signal.SIGKILL
        if self.term_at is not None and (now >= self.term_at or alone):
            return replace(self, term_at=None, kill_at=now + GRACE_S), signal.SIGTERM
        return self, None
