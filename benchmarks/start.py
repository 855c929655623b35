"""How soon every worker has made its first step, against TensorFlow's import alone."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks import pairs
from benchmarks.measure import Setting, say, told
from benchmarks.outcome import Outcome, Target
from benchmarks.steps import all_stepped_at
from benchmarks.trainings import TASKS, Workplace, by_lab

TARGET = Target("at most", 1.6)
FLAGS = ("--epochs=1", "--seed=1", "--record_every=1")

HOW = (
    "From the moment before `lab run --backend local` is started, with no environment up, until the"
    " last worker has made its first step, by its own record; against {count} processes that are"
    " started at once and do nothing but `import tensorflow`, until the last of them has it. One"
    " import before the first pair writes bytecode and fills the page cache."
)
_IMPORT = "import tensorflow, time; print(time.time())"


def measure(setting: Setting) -> list[Outcome]:
    """The ratio, on local."""
    say(f"start on local: {setting.pairs} pairs")
    say(f"  first import, not counted: {import_at_once(setting.place, 1):.2f} s")
    raw = pairs.interleaved(
        told("lab run to every first step", lambda: first_steps(setting.place), _shown),
        told("import alone", lambda: import_at_once(setting.place, len(TASKS)), _shown),
        setting.pairs,
    )
    by_lab_alone, imports = ([pair[side] for pair in raw] for side in (0, 1))
    return [
        Outcome(
            key="start-local",
            what="`lab run` to the first step of every worker / `import tensorflow` alone",
            unit="ratio",
            target=TARGET,
            found=pairs.ratio(raw),
            how=HOW.format(count=len(TASKS)),
            details={
                "`lab run`": _shown(pairs.estimate(by_lab_alone).median),
                f"{len(TASKS)} imports at once": _shown(pairs.estimate(imports).median),
            },
            raw={"lab_s": by_lab_alone, "import_s": imports},
        )
    ]


def first_steps(place: Workplace) -> float:
    """Seconds from `lab run` to the first step of the last worker."""
    training = by_lab(place, "local", FLAGS)
    return all_stepped_at(training.records) - training.began_unix


def import_at_once(place: Workplace, count: int) -> float:
    """Seconds until the last of so many processes has imported TensorFlow."""
    began = time.time()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _IMPORT],
            env=place.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(count)
    ]
    said = [process.communicate()[0] for process in processes]
    return max(float(each) for each in said) - began


def _shown(seconds: float) -> str:
    return f"{seconds:.2f} s"
