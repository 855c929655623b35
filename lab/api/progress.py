"""Progress of several runs as one line that changes."""

from __future__ import annotations

from collections.abc import Sequence

from lab.console import Output
from lab.errors import Notify
from lab.formatting import counted
from lab.service.batches import (
    Batch,
    Outcome,
    Progress,
    follow_batches,
    run_batches,
    run_count,
)


def follow(batches: Sequence[Batch], out: Output, *, quiet: bool, notify: Notify | None) -> Outcome:
    """Run all batches, and show the current run and each result.

    Args:
        batches: The runs.
        out: Shows the current run in one line.
        quiet: Whether to show nothing.
        notify: Receives the results instead, with a bar on a terminal.
    """
    if notify is not None:
        return run_batches(batches, notify)
    total = run_count(batches)

    def show(done: int, line: str) -> None:
        if not quiet:
            out.draw(f"run {min(done + 1, total)} of {total}: {line}")

    report = discard if quiet else out.notify
    outcome = follow_batches(batches, Progress(total, report, show))
    out.draw("")
    report(f"{len(outcome.results)} of {counted(total, 'run')} ended")
    return outcome


def discard(_line: str) -> None:
    """Discard a line."""
