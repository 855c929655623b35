"""Progress of several runs as one line that changes."""

from __future__ import annotations

from collections.abc import Sequence

from lab.analysis.batches import (
    Batch,
    Outcome,
    Progress,
    follow_batches,
    run_count,
)
from lab.console import Output
from lab.formatting import counted
from lab.log import LOG


def follow(batches: Sequence[Batch], out: Output, *, quiet: bool) -> Outcome:
    """Run all batches, and show the current run and each result."""
    total = run_count(batches)

    def show(done: int, line: str) -> None:
        if not quiet:
            out.draw(f"run {min(done + 1, total)} of {total}: {line}")

    outcome = follow_batches(batches, Progress(total, show))
    out.draw("")
    LOG.info(f"{len(outcome.results)} of {counted(total, 'run')} ended")
    return outcome
