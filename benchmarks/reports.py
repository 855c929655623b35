"""How long `lab report` of ten whole trainings takes, as a whole process, and how large it is."""

from __future__ import annotations

import sys

from benchmarks import pairs, recorded
from benchmarks.commands import seconds
from benchmarks.measure import Setting, say
from benchmarks.outcome import Outcome, Target

TIME = Target("at most", 10)
SIZE = Target("at most", 5_000_000)
RUNS = 10
QUICK_STEPS = 1100


def measure(setting: Setting) -> list[Outcome]:
    """One page of ten runs, again and again."""
    home = setting.place.folder / "runs"
    steps = QUICK_STEPS if setting.quick else recorded.STEPS
    ids = [f"20261121-0000-async-{number:04}" for number in range(RUNS)]
    for number, run_id in enumerate(ids):
        recorded.make(home, run_id, steps=steps, seed=number + 1)
    page = setting.place.folder / "report.html"
    words = [sys.executable, "-m", "lab", "report", *ids, "--runs-dir", str(home)]
    say(f"lab report of {RUNS} runs: {setting.pairs} times")
    command = [*words, "--output", str(page)]
    seconds(setting.place, command)  # not counted: it may write bytecode and a list of fonts
    took, sizes = [], []
    for _ in range(setting.pairs):
        took.append(seconds(setting.place, command))
        sizes.append(float(page.stat().st_size))
    of = f"{RUNS} runs of {3 * steps:,} steps with three workers, a record each 100 steps;"
    how = f"{of} their directories are written for this, with made-up figures."
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
            how=f"The one HTML file: {how}",
        ),
    ]
