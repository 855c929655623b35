"""Progress of several runs as one line that changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab.console import Output
from lab.formatting import counted
from lab.service.batches import Batch, Outcome, Progress, follow_batches, run_count


def follow(batches: Sequence[Batch], runs_dir: Path, out: Output, *, quiet: bool) -> Outcome:
    """Run all batches, and show the current run and each result."""
    total = run_count(batches)

    def show(done: int, line: str) -> None:
        if not quiet:
            out.draw(f"run {min(done + 1, total)} of {total}: {line}")

    report = discard if quiet else out.notify
    outcome = follow_batches(batches, runs_dir, Progress(total, report, show))
    out.draw("")
    report(f"{len(outcome.results)} of {counted(total, 'run')} ended")
    return outcome


def discard(_line: str) -> None:
    """Discard a line."""
