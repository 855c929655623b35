"""The time to the first step of every worker, relative to the import of TensorFlow."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import pairs
from benchmarks.environment import environment
from benchmarks.measure import Setting, print_progress, with_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.steps import all_stepped_at
from benchmarks.trainings import CLUSTER, TASKS, Workplace, by_lab

FLAGS = ("--epochs=1", "--seed=1", "--record_every=1")

_UNTIL = (
    " to the first step record of the last worker. It is divided by the time in which {count}"
    " processes, started together, complete `import tensorflow`. One import before the first pair"
    " writes bytecode and fills the page cache."
)
_IMPORT = "import tensorflow, time; print(time.time())"


@dataclass(frozen=True, slots=True)
class Case:
    """One way to start.

    Attributes:
        key: The key of its outcome.
        backend: The backend.
        is_up: Whether the environment is already running.
        value: The limit of the ratio.
    """

    key: str
    backend: str
    is_up: bool
    value: float

    @property
    def how(self) -> str:
        """How it is measured."""
        up = "a running environment" if self.is_up else "no running environment"
        begin = f"The time from the start of `lab run --backend {self.backend}`, with {up},"
        return begin + _UNTIL.format(count=len(TASKS))


CASES = (
    Case("start-local", "local", is_up=False, value=1.15),
    Case("start-local-up", "local", is_up=True, value=1.15),
    Case("start-compose-up", "compose", is_up=True, value=1.4),
)


def measure(setting: Setting) -> list[Outcome]:
    """Measure the ratios: on local without an environment, and on both backends with one."""
    print_progress(f"  first import, not counted: {import_at_once(setting.place, 1):.2f} s")
    return [_measure(setting, case) for case in CASES if case.backend in setting.backends]


def _measure(setting: Setting, case: Case) -> Outcome:
    up = " with the environment up" if case.is_up else ""
    print_progress(f"start on {case.backend}{up}: {setting.pairs} pairs")
    what = f"`lab run` on {case.backend}{up} to every first step / `import tensorflow` alone"
    with environment(setting.place, case.backend, wanted=case.is_up) as why_not:
        if why_not:
            target = Target("at most", case.value)
            return Outcome(case.key, what, "ratio", target, None, case.how, why_not)
        raw = pairs.interleaved(
            with_progress("lab run", lambda: first_steps(setting.place, case.backend), _shown),
            with_progress(
                "import alone", lambda: import_at_once(setting.place, len(TASKS)), _shown
            ),
            setting.pairs,
        )
    by_lab_alone, imports = ([pair[side] for pair in raw] for side in (0, 1))
    return Outcome(
        key=case.key,
        what=what,
        unit="ratio",
        target=Target("at most", case.value),
        found=pairs.ratio(raw),
        how=case.how,
        details={
            "`lab run`": _shown(pairs.estimate(by_lab_alone).median),
            f"{len(TASKS)} imports at once": _shown(pairs.estimate(imports).median),
        },
        raw={"lab_s": by_lab_alone, "import_s": imports},
    )


def first_steps(
    place: Workplace, backend: str, flags: Sequence[str] = FLAGS, cluster: Path = CLUSTER
) -> float:
    """Return the seconds from the start of `lab run` to the first step of the last worker."""
    training = by_lab(place, backend, flags, cluster)
    return all_stepped_at(training.records) - training.began_unix


def import_at_once(place: Workplace, count: int) -> float:
    """Return the seconds in which a number of processes import TensorFlow."""
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
    outputs = [process.communicate()[0] for process in processes]
    return max(float(output) for output in outputs) - began


def _shown(seconds: float) -> str:
    return f"{seconds:.2f} s"
