"""Check whether `lab` can work on this host, and suggest fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.doctor.checks import CHECKS
from lab.doctor.model import Finding, Report
from lab.doctor.runner import run_checks

__all__ = ["Finding", "Report", "examine"]


def examine(watch: Callable[[str], None] = lambda _: None) -> Iterator[Finding]:
    """Run all checks, and yield each finding as soon as it is known.

    Args:
        watch: Receives the name of each check before it runs; some checks take seconds.

    Yields:
        The findings, area by area.
    """
    yield from run_checks(CHECKS, watch)
