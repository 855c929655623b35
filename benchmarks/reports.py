"""The time of the whole process `lab report` of ten trainings, and the size of the page."""

from __future__ import annotations

import sys

from benchmarks import pairs, recorded
from benchmarks.commands import seconds
from benchmarks.measure import Setting, print_progress
from benchmarks.outcome import Outcome, Target

TIME = Target("at most", 10)
SIZE = Target("at most", 5_000_000)
RUNS = 10
QUICK_STEPS = 1100


def measure(setting: Setting) -> list[Outcome]:
    """Make the page of ten runs repeatedly."""
    runs = setting.place.folder / "runs"
    steps = QUICK_STEPS if setting.quick else recorded.STEPS
    ids = [f"20261121-0000-async-{number:04}" for number in range(RUNS)]
    for number, run_id in enumerate(ids):
        recorded.make(runs, run_id, steps=steps, seed=number + 1)
    page = setting.place.folder / "report.html"
    command = [sys.executable, "-m", "lab", "report", *ids, "--runs-dir", str(runs)]
    command += ["--output", str(page)]
    print_progress(f"lab report of {RUNS} runs: {setting.pairs} times")
    seconds(setting.place, command)  # not counted: it may write bytecode and a font cache
    took, sizes = [], []
    for _ in range(setting.pairs):
        took.append(seconds(setting.place, command))
        sizes.append(float(page.stat().st_size))
    how = (
        f"{RUNS} runs of {3 * steps:,} steps with three workers and a record every 100 steps; the"
        " records are invented."
    )
    return [
        Outcome(
            key="report-time",
            what=f"`lab report` of {RUNS} runs",
            unit="s",
            target=TIME,
            found=pairs.estimate(took),
            how=f"The whole process: {how}",
        ),
        Outcome(
            key="report-size",
            what=f"the page of {RUNS} runs",
            unit="bytes",
            target=SIZE,
            found=pairs.estimate(sizes),
            how=f"The HTML file: {how}",
        ),
    ]
