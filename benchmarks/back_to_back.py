"""The time that a run in a running environment takes in addition to its programs."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks import pairs
from benchmarks.environment import environment
from benchmarks.measure import Setting, print_progress, with_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.trainings import TASKS, Workplace, lab_run, must

TARGET: Final = Target("at most", 1.0)
FLAGS: Final = ("--epochs=1", "--global_steps=200", "--seed=1")

HOW: Final = (
    "Consecutive runs of mnist_async.py (1 ps and 3 workers, 200 global steps) in a running"
    " environment. The figure is the time of the whole process `lab run`, minus the time between"
    " the start of the first program and the last record of any program. The rest is the client's"
    " start, the submission, the programs' exit, the collection and the summary."
)


def measure(setting: Setting) -> list[Outcome]:
    """Measure this time on each backend."""
    return [_measure(setting, backend) for backend in setting.backends]


def _measure(setting: Setting, backend: str) -> Outcome:
    print_progress(f"back to back on {backend}: {setting.pairs} runs")
    found, wholes = None, list[float]()
    with environment(setting.place, backend) as why_not:
        if not why_not:
            rest(setting.place, backend)  # not counted: the first run fills caches
            one = with_progress("beside the programs", lambda: rest(setting.place, backend), _shown)
            values = [one() for _ in range(setting.pairs)]
            found = pairs.estimate([left for left, _ in values])
            wholes = [whole for _, whole in values]
    details = {"the whole of `lab run`": f"{pairs.estimate(wholes).median:.2f} s"} if wholes else {}
    return Outcome(
        key=f"back-to-back-{backend}",
        what=f"`lab run` on {backend} with the environment up, beside import and training",
        unit="s",
        target=TARGET,
        found=found,
        how=HOW,
        why_not=why_not,
        details=details,
        raw={"whole_s": wholes},
    )


def rest(place: Workplace, backend: str) -> tuple[float, float]:
    """Return the time of a run without its programs, and its total time, in seconds."""
    runs = Path(tempfile.mkdtemp(prefix="runs-", dir=place.folder))
    began = time.time()
    must(place, "lab run", lab_run(backend, runs, FLAGS))
    whole_s = time.time() - began
    (run,) = runs.iterdir()
    statuses = [json.loads((run / f"status/{task}.json").read_text()) for task in TASKS]
    started = min(float(status["started_unix"]) for status in statuses)
    lines = [line for task in TASKS for line in (run / f"tasks/{task}.jsonl").open()]
    last = max(float(json.loads(line)["time_unix"]) for line in lines)
    return whole_s - (last - started), whole_s


def _shown(found: tuple[float, float]) -> str:
    return f"{found[0]:.2f} s of {found[1]:.2f} s"
