"""What a run in an environment that is up takes beside its programs."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks import pairs
from benchmarks.measure import Setting, say, told
from benchmarks.outcome import Outcome, Target
from benchmarks.standing import environment
from benchmarks.trainings import TASKS, Workplace, lab_run, must

TARGET: Final = Target("at most", 1.0)
FLAGS: Final = ("--epochs=1", "--global_steps=200", "--seed=1")

HOW: Final = (
    "Runs of mnist_async.py (1 ps and 3 workers, 200 global steps), one right after the other in an"
    " environment that is up: the time of the whole process `lab run`, from its start to its end,"
    " less the time from the moment at which the agents had started the first program until the"
    " last record of any program, its `final` one. What is left is the helper's start, the"
    " submission, the programs' own end behind their last word, the collection and the summary."
)


def measure(setting: Setting) -> list[Outcome]:
    """What is left, on each backend."""
    return [_measure(setting, backend) for backend in setting.backends]


def _measure(setting: Setting, backend: str) -> Outcome:
    say(f"back to back on {backend}: {setting.pairs} runs")
    found, wholes = None, list[float]()
    with environment(setting.place, backend) as why_not:
        if not why_not:
            rest(setting.place, backend)  # the first fills caches
            one = told("beside the programs", lambda: rest(setting.place, backend), _shown)
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
    """What one run took beside its programs, and in all, in seconds."""
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
