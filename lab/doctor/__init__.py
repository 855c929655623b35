"""Checks of this host: what `lab` can do on it, and how to fix what it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.doctor.checks import CHECKS
from lab.doctor.model import Finding, Report
from lab.doctor.runner import run_checks

__all__ = ["Finding", "Report", "examine"]


def examine(watch: Callable[[str], None] = lambda _: None) -> Iterator[Finding]:
    """Make all checks, and yield each finding as soon as it is known.

    Args:
        watch: Receives the name of each check before it is made: some take seconds.

    Yields:
        The findings, area by area.
    """
    yield from run_checks(CHECKS, watch)
